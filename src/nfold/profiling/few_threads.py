"""Finds out whether capture is quicker with one thread: its batches are tiny, and threads wait for each other."""

import contextlib
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn

from nfold.capture.batches.example import SIZES, Example
from nfold.capture.computing.random import RandomState
from nfold.capture.program.program_graph import Loss
from nfold.capture.program.trial import try_step
from nfold.errors import ProgramError
from nfold.profiling.measure import Clock, Meter

_QUICK_S = 0.15
"""A capture is about twenty passes: with quicker ones, more threads have little to win."""


@contextlib.contextmanager
def few_threads(
    fresh: Callable[[], nn.Module],
    loss: Loss,
    example: Example,
    meter: Meter,
    processor: Clock = time.process_time,
) -> Iterator[None]:
    """Compute with one thread inside, if a pass over three samples is quick, or quicker than with all. 2 or 4 passes.

    Where other processes compute as well, each operator of several threads waits until the slowest has got a core.

    Args:
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.
        meter: of seconds by the clock.
        processor: counts this process's processor seconds, which other processes do not change.
    """
    threads, before = torch.get_num_threads(), RandomState()
    try:
        if threads > 1:
            torch.set_num_threads(1)
            with contextlib.suppress(ProgramError):  # the capture tells of it, or tries more samples
                if _gains(_Step(fresh(), loss, example, meter, processor), threads):
                    torch.set_num_threads(threads)
            before.restore()
        yield
    finally:
        torch.set_num_threads(threads)


def _gains(step: "_Step", threads: int) -> bool:
    """Tell whether threads are quicker than one, which computes now."""
    alone_s, worked_s = step.second_s()
    if worked_s <= _QUICK_S:
        return False
    torch.set_num_threads(threads)
    try:
        return step.second_s()[0] < alone_s
    finally:
        torch.set_num_threads(1)


class _Step:
    """A step of a copy of the model, to be timed."""

    def __init__(self, model: nn.Module, loss: Loss, example: Example, meter: Meter, processor: Clock) -> None:
        self._model, self._loss, self._example = model, loss, example
        self._meter, self._processor = meter, processor

    def second_s(self) -> tuple[float, float]:
        """Return seconds, and processor seconds, of a pass after one that has made what is made once."""
        begun = 0.0, 0.0
        for _ in range(2):
            begun = self._meter.now(), self._processor()
            try_step(self._model, self._loss, self._example.batch(SIZES[0]))
            self._model.zero_grad(set_to_none=True)
        return self._meter.now() - begun[0], self._processor() - begun[1]
