"""Runs seen from other terminals: the list of the user's runs, a run's state while it goes on, its log, its end.

database                 the list of runs, as a file
run_list                 which runs there are, and which of them is meant
live_run, publisher      writes what others see of a run
run_figures              how far a run is
log_reading              what its processes print
run_process, stop_run    whether it still runs; asks it to end
"""
