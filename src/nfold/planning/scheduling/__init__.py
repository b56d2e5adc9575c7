"""Compiles a placement and its reductions into the tasks of one step, in an order that is fixed before the run.

schedule_compiler    placement and reductions in, tasks of all ranks out
segments             runs of operators that a rank computes as one
order                the order of each rank's compute tasks
windows              how many chunks a rank may have begun and not finished
cell_dependencies    what each cell waits for
rank_schedules       what each rank is sent of it
shadow_part          what a newcomer that follows as a shadow is given of a step, and what it plays
garbage_collection   Python's collector, kept away meanwhile
"""
