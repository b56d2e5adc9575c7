"""What a user may ask of a run, and the record of it, with which the run goes on.

Options are declared in `core/options/run_options.py`: one field makes the flag, the keyword and the place in the
record.
"""
