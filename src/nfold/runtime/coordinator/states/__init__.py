"""Who has which elements of the model's state, and how the next ranks come by them without a disk. Pure."""
