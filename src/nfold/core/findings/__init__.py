"""What verbs find, beside the report of a run: advice on nodes, and runs side by side."""
