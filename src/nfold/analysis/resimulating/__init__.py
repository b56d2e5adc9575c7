"""The run simulated again, as it was and with something changed: what-ifs, other plans, other machines.

`changes.py` has what a person could change, a faster link among it. `analysis/reporting/gains_of_changes.py` says what
each would win.
"""
