"""What each ATen operator does to the samples of a batch, one rule an operator, and what rules are written in."""
