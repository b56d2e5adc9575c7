"""Starts ranks, on this machine or on an emulated cluster, and leaves none behind.

launcher                       what a launcher must do
local_launcher, thread_launcher    members as processes of this machine, or as threads
template, template_process     the process that ranks are forked from: its user's side, and its own
asked                          a member that a template was asked for
fork_server, forking           forks processes from an early copy of this one
child                          a process that was started: how it ended, and its end
orphans                        ends ranks with the command that started them
rank_command, command_line     what starts a rank; what `ps` shows of it
output                         what members print, as one log
stopping                       hears Ctrl-C and its like
mpi_process                    a child that takes this process's place in MPI
emulation                      clusters on this machine

`verbs/ranks/starting.py` chooses a launcher. Job systems and other hosts, where agents start ranks, are in
`hosts/managers`.
"""
