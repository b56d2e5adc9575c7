"""What a rank holds between steps: parameters by name, the flat buckets that they lie in, and optimizers."""
