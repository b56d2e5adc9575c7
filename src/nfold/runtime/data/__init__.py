"""Samples: their order, reading and joining them ahead of the steps, in threads or in processes of their own.

ordering       the order of a program's own sampler
chunk_loader   which samples a chunk holds; has them read ahead
sample_reader  reads samples and has them joined, in this process
loaders        the same in processes of their own, each of them a `loader_process`

Items become tensors in `capture/batches/joining.py`, the same way when a program is measured and when it trains.
"""
