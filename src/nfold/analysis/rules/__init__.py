"""One rule for each cause of lost time: what it says of a run, and by which numbers."""
