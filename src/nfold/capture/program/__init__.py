"""The user's model and loss: built, called and tried, also under autocast, and together as one graph."""
