"""What a user may ask of a run, and the record of it, with which the run goes on."""
