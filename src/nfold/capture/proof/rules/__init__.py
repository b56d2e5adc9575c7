"""What each ATen operator does to the samples of a batch, one rule an operator, and what rules are written in.

reducing       sum, mean, softmax, sort, cumsum ..      pointwise   add, mul, relu, where ..
products       mm, convolution, attention               layers      batch_norm, pooling, lstm, losses
indexing       embedding, gather, scatter, masks        views       view, transpose, cat, slice ..
creation       full, arange; what gives no tensor       gradients   operators of a backward pass
rule_registry  the table in which rules are looked up by operator; rules are written with calls, kinds, counting
"""
