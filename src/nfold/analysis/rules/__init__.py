"""One rule for each cause of lost time: what it says of a run, and by which numbers.

Which of their findings is the run's verdict is decided in `analysis/reporting/verdict.py`.
"""
