"""Who takes part in a run: who comes, who leaves, who is lost, and how one generation follows another. Pure."""
