"""Samples: their order, reading and joining them ahead of the steps, in threads or in processes of their own.

chunk_loader     which samples a chunk holds, in the plain order too; has them read ahead
ordering         the order of a program's own sampler
sample_reader    reads samples and has them joined, in this process
loaders          the same in processes of their own, each a `loader_process`; passing carries their batches
steady_items     refuses data whose items depend on what was read before
unsuited_data    what to hand over instead of a DataLoader or an iterable dataset
loaded_program   what a rank checks and tells of the program that it has loaded, and its device
torch_compiler   keeps torch's compiler out of ranks

Items become tensors in `capture/batches/joining.py`, the same way when a program is measured and when it trains. How
many samples a chunk gets is decided in `core/chunks.py`.
"""
