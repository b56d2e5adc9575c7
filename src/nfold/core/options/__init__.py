"""What a user may ask of a run. `run_options.py` declares each option once."""
