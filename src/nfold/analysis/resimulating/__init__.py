"""The run simulated again, as it was and with something changed: what-ifs, other plans, other machines.

calibrate                 measurements put into the question that was planned from
playback                  a plan played once more; asynchronous_playback, an asynchronous run
without_each_cause        the step without one cause of lost time
changes                   what a person could change, a faster link among it; changed_questions, what it asks with
even_work                 uneven work evenly divided
simulated_parts           a simulated step in the parts of a measured one

What each change would win is told in `analysis/reporting/gains_of_changes.py`.
"""
