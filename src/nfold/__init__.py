"""nfold: one-device PyTorch programs on the machines you have."""
