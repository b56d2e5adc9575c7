"""Repeats something until its median is known well enough or its share of the time is used up."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from nfold.core.profile import ChunkTiming, Timing

Clock = Callable[[], float]
Pair = tuple[float, float]
"""Seconds of forward and backward."""

MOST_REPEATS = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class Meter:
    """Reads a clock when the device has finished what it was given."""

    clock: Clock = time.perf_counter
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def now(self) -> float:
        """Return seconds."""
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

    def repeat(self, measure: Callable[[], Pair], budget_s: float) -> list[Pair]:
        """Warm up once, then measure up to `MOST_REPEATS` times, at least once, for about `budget_s`."""
        begin_s = self.now()
        measure()
        found = [measure()]
        while len(found) < MOST_REPEATS:
            used_s = self.now() - begin_s
            if used_s * (1 + 1 / (len(found) + 1)) > budget_s:
                break
            found.append(measure())
        return found


def timing(seconds: Sequence[float]) -> Timing:
    """Return the median of repeated measurements and the distance between their quartiles."""
    spread_s = 0.0
    if len(seconds) > 1:
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        spread_s = high - low
    return Timing(median_s=statistics.median(seconds), spread_s=spread_s, repeats=len(seconds))


def chunk_timing(chunk_size: int, pairs: Sequence[Pair]) -> ChunkTiming:
    """Return what repeated forward and backward passes of a chunk took."""
    return ChunkTiming(
        chunk_size=chunk_size,
        forward=timing([forward for forward, _ in pairs]),
        backward=timing([backward for _, backward in pairs]),
    )
