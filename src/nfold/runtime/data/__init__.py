"""Samples: their order, reading and joining them ahead of the steps, in threads or in processes of their own.

Items become tensors in `capture/batches/joining.py`, the same way when a program is measured and when it trains.
"""
