"""Findings -> report: the verdict, what would win time back, and what to type for it.

run_report         puts a report together
verdict            decides which finding is the verdict, and words it with its advice
gains_of_changes   simulates the run with each change that a person could make: a faster link, another strategy ..
resimulation       the run simulated as it was, and without each cause
own_limit          how many workers help, in words
accepted_advice    whether nfold would accept a command that is about to be advised
"""
