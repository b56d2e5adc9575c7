"""Repeats something until its median is known well enough or its share of the time is used up."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from nfold.core.profile import ChunkTiming, Timing

Clock = Callable[[], float]
T = TypeVar("T")
Pair = tuple[float, float]
"""Seconds of forward and backward."""

MOST_REPEATS = 15
LEAST_RUNS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Meter:
    """Reads a clock when the device has finished what it was given."""

    clock: Clock = time.perf_counter
    """Gives seconds, from any zero."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def now(self) -> float:
        """Return the seconds of the clock, once the device is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return self.clock()

    def for_cores(self, cores: float) -> "Meter":
        """Return a meter for what only computes, also where it has less than a core.

        There, what ends before a period's quota is used up takes a fraction of its fair time, and what meets the limit
        a multiple: a few repeats tell neither. Processor seconds over the share of cores is what both take on average.
        """
        if cores >= 1 or self.device.type == "cuda":
            return self
        return replace(self, clock=lambda: time.process_time() / cores)

    def repeat(self, measure: Callable[[], T], budget_s: float, *, is_warm: bool = False) -> list[T]:
        """Measure up to `MOST_REPEATS` times for about `budget_s`, after a run to warm up unless there has been one.

        Whatever the budget, it runs twice, both counted where it is warm: one run alone may have been disturbed.
        """
        begin_s = self.now()
        num_runs, found = 0, list[T]()
        while num_runs < LEAST_RUNS or (
            len(found) < MOST_REPEATS and (self.now() - begin_s) * (1 + 1 / num_runs) <= budget_s
        ):
            measured = measure()
            if num_runs or is_warm:
                found.append(measured)
            num_runs += 1
        return found


def timing(seconds: Sequence[float]) -> Timing:
    """Return the median of at least one measurement in seconds, and the distance between the quartiles."""
    spread_s = 0.0
    if len(seconds) > 1:
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        spread_s = high - low
    return Timing(median_s=statistics.median(seconds), spread_s=spread_s, repeats=len(seconds))


def chunk_timing(chunk_size: int, pairs: Sequence[Pair]) -> ChunkTiming:
    """Return what repeated passes of a chunk of so many samples took, forward and backward each for itself."""
    return ChunkTiming(
        chunk_size=chunk_size,
        forward=timing([forward for forward, _ in pairs]),
        backward=timing([backward for _, backward in pairs]),
    )
