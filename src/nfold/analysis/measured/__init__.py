"""What a run measured, added up: where a step's time went, what each channel and each node did, what it learnt."""
