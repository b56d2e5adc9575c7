"""The whole model's and its optimizer's state from what each rank holds, as a file; and averages of weights.

checkpoint_format  what is in the file, and cutting the optimizer's state for the rank that reads it
state_collection   collects it on rank 0, a piece at a time; `gather` and `exchange` carry the pieces
file_layout        which rank's elements stand where in the file
state_file         writes and reads the file
extra_state        what modules say of themselves beside tensors
agreement          whether ranks hold the same weights
"""
