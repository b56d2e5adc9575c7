"""The whole model's state from what each rank holds, as a file; and averages of weights."""
