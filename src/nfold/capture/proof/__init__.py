"""Proves, operator by operator, that samples of a batch do not see each other and that the loss is a mean over them.

prove            a program -> proved, mixed (with the line that mixes) or unknown
follow           runs a program on tensors without memory, for any number of samples, asking the rules at each operator
rules            one rule for each operator: in `reducing`, `pointwise`, `products`, `layers`, `indexing`, `views`,
                 `creation`, `calls` and `gradients`; `kinds` says what a tensor may know of the batch
guards           what is true of all operators, whatever a rule says
deciding         programs that decide by the number of samples
conditions       what must hold of the data for the proof to hold, as a small program that runs on any batch
tape, writing    what was computed of data alone, and how it is written down; `lengths` for batches of any length
shape_shortcuts  results by shapes alone, where torch would follow a dozen operators
"""
