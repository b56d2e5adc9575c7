"""The transports themselves: over memory for threads of one process, over TCP, and through MPI."""
