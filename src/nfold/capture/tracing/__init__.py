"""Program -> graph, by torch.fx or torch.export; and what each node does, and which sizes it needs.

fx_tracing    the first way: small operators with the user's names
exporting     the second, for programs that fx refuses
known_sizes   which sizes Python may decide on while a trace runs
value_sizes   which sizes are decided by values, and so never
observe       plays the trace, and writes down what each node did
layer_rows    layers that can compute some of their output channels
plain_errors  what torch's errors mean to the user
"""
