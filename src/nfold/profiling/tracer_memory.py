"""Measures what torch's tracer takes of a process: a rank that only trains does not load it."""

import functools

import torch
from torch import nn

from nfold.capture.batches.example import Example
from nfold.profiling.measured_memory import resident_bytes


@functools.cache
def tracer_bytes() -> int:
    """Load the tracer by following a program of one layer; return the bytes that it adds, 0 if it was loaded before.

    About 1.4 s of processor time the first time.
    """
    before = resident_bytes()
    from nfold.capture.proof.prove import prove

    prove(nn.Linear(1, 1), nn.functional.mse_loss, Example(make=lambda size, _: (torch.ones(size, 1),) * 2))
    return max(0, resident_bytes() - before)
