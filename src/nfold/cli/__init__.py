"""The command line: parse, call one verb, print.

main                  finds the command, and turns errors into a line and an exit code
flags                 flags that several commands share
X_command             one command: its flags, its verb, what it prints; those of `watching` look after other runs
terminal              shows a run while it goes on
beginning             when the command began
early_template        has what ranks are forked from imported with the command
started_together      a command that MPI or srun has started more than once
"""
