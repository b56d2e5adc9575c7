"""The ways to decide what each node shall hold, each for itself, and all of them as choices that are priced alike."""
