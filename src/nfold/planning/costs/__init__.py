"""What a placement costs on given machines: seconds of tasks, of reading and of a step; bytes of memory.

task_seconds       seconds of each compute task
scenario           a schedule with all that decides its time, ready to be simulated
estimate           the quick way, without compiling and simulating
machines           what a rank has of its node
operator_runs      operators joined into runs, and what spans of these cost
read_ahead         what of reading samples a rank waits for
peak_memory        bytes of each rank at its peak
memory_objection   which nodes have too little memory for a proposal
memory_needs       rough bytes of a model, before anything is placed
"""
