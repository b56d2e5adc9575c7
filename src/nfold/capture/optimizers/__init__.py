"""The user's optimizer: built over any weights, how far its update can be cut, and how its state is kept."""
