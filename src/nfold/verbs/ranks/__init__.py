"""A job's ranks as processes, threads or on emulated nodes: how they start, and what joins the layers in each.

starting                        chooses how they start and are reached
emulated_ranks, thread_ranks    on the nodes of an emulated cluster; as threads
remote_hosts                    on other hosts, and which rank lives where
scaling, host_scaling           more or fewer hosts while a run trains
replacing                       another host for one that was taken away
find_manager                    which manager brings these hosts
rank_process, rank_work         a rank's process, before torch is there and after
rank_template, script_imports   what ranks are forked from, and what it imports
toolbox                         gives a rank what the runtime may not import
mpi_rank, mpi_wiring            a rank in MPI
"""
