"""The whole model's and its optimizer's state from what each rank holds, as a file; and averages of weights.

checkpoint_format  names of tensors and facts beside them: what is in the file, on the side that gives and that reads
state_collection   collects it on rank 0, a piece at a time; `gather` and `exchange` carry the pieces
file_layout        which rank gives which elements of each tensor
state_file         the bytes of the file: header, offsets, data; writes and reads them
extra_state        what modules say of themselves beside tensors
weight_averages    averages of the weights
agreement          whether ranks hold the same weights, and whether these are numbers
joined_facts       what ranks say beside tensors, as the file says it

When a checkpoint is due is decided in `runtime/coordinator/training.py`; the file is put in its place by
`verbs/run_folder`. How an optimizer's state can be cut: `capture/optimizers/state_scope.py`.
"""
