"""The folder that a run leaves behind: where it lies, what is in it, who may write to it, and going on from it."""
