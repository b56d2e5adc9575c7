"""MPI as a way to hosts: the processes that `mpirun` has started become agents."""
