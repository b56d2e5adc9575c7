"""How fast a rank computes while all the others compute too."""

import time
from typing import Any

import torch

from nfold.capture import sample_batches
from nfold.capture.building import build_model
from nfold.capture.trial import try_step
from nfold.profiling.measure import Clock, Meter
from nfold.profiling.profile import undisturbed
from nfold.program import Program


def measure_pace(
    program: Program,
    dataset: Any,
    *,
    chunk_size: int,
    num_threads: int,
    budget_s: float,
    clock: Clock = time.perf_counter,
    device: torch.device | None = None,
) -> float:
    """Return the mean seconds of one forward and backward of a chunk. It leaves no trace.

    A mean and not a median: where a node's share of the processor is limited, some passes run into the limit and the
    others do not, and a step pays for all of them.

    Args:
        program: the user's.
        dataset: its training data.
        chunk_size: samples of a pass.
        num_threads: of the rank.
        budget_s: for the passes after the first; there is at least one.
        clock: gives seconds.
        device: where to compute; the CPU if not given.
    """
    device = device or torch.device("cpu")
    meter = Meter(clock=clock, device=device)
    with undisturbed(num_threads):
        model = build_model(program, device)
        batch = sample_batches(dataset, device).batch(chunk_size)
        try_step(model, program.loss, batch)
        begin_s, passes = meter.now(), 0
        while not passes or meter.now() - begin_s < budget_s:
            torch.autograd.backward(program.loss(model(batch[0]), batch[1]))
            passes += 1
        return (meter.now() - begin_s) / passes
