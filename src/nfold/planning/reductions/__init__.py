"""How gradients are summed: which parameters share a bucket, which rank sums it, and the messages that it takes."""
