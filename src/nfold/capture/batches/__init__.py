"""Items of the user's data: nested tensors, how they are read and joined, example batches and their sizes."""
