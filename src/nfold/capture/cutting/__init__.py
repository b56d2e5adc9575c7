"""Graph -> operators: the smallest pieces that may compute on different ranks; compiled, named, cut into parts.

operator_cut         groups nodes into operators
captured             the result: a ModelGraph, and functions for any of its operators
compiled_segments    compiles a run of nodes into one Python function
naming               names operators and tensors by the user's module paths
replay               plays a cut program chunk by chunk on one device, for the gate
chains, channelwise  which operators can be cut by output channels
program_splitting    cuts them so
"""
