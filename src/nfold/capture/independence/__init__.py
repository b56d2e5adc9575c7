"""Tries whether samples of a batch see each other, and whether the loss is a mean over them."""
