"""What a user may ask of a run. `run_options.py` declares each option once.

best_model  `keep=`: which evaluation is the best so far
averages    of weights
"""
