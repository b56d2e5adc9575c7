"""Proves, operator by operator, that samples of a batch do not see each other and that the loss is a mean over them.

kinds        what a tensor knows of the batch: nothing, a row for each sample, a sum over samples, or a mixture
counting     sizes and numbers as multiples of the number of samples
calls        one call of an ATen operator, its arguments by name
rules_*      for each operator: from the kinds of its arguments to those of its results
follow       runs a program on tensors without memory, for any number of samples, and asks the rules at each operator
conditions   what must hold of the data for the proof to hold, as a small program that runs on any batch
prove        a program -> proved, mixed (with the line that mixes) or unknown
"""
