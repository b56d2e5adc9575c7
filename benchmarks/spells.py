"""Tells when a machine that others share computed slowly, so that what was measured then can be measured again.

Its neighbours can slow a processor down to half for some seconds, of which no counter tells. A fixed piece of work,
repeated on each processor beside all else, does: it takes a hundredth of their time.
"""

import os
import threading
import time
from collections.abc import Iterable, Sequence
from statistics import quantiles
from typing import NamedTuple, Self

EVERY_S = 0.05
WORK = 20_000
"""Rounds of a loop: half a millisecond."""
SLOW = 1.4
"""Times what the work takes on the quiet processor."""
FEWEST_SAMPLES = 20


class Sample(NamedTuple):
    """The fixed work, once."""

    at_s: float
    took_s: float


class Watch:
    """Samples every processor in the background, from `with` to its end."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._samples: dict[int, list[Sample]] = {cpu: [] for cpu in os.sched_getaffinity(0)}
        self._threads = [threading.Thread(target=self._run, args=(cpu,), daemon=True) for cpu in self._samples]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def slow_share(self, begin_s: float, end_s: float) -> float:
        """Return the part of a time (by `time.monotonic`) during which processors were slow."""
        return slow_share([tuple(samples) for samples in self._samples.values()], begin_s, end_s)

    def _run(self, cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})  # of this thread
        while not self._ended.wait(EVERY_S):
            begin_s = time.thread_time()
            total = 0
            for number in range(WORK):
                total += number * number
            self._samples[cpu].append(Sample(time.monotonic(), time.thread_time() - begin_s))


def slow_share(processors: Iterable[Sequence[Sample]], begin_s: float, end_s: float) -> float:
    """Return the part of the samples in a time that are slow beside their own processor's quick ones; 0 of too few."""
    slow, seen = 0, 0
    for samples in processors:
        if len(samples) < FEWEST_SAMPLES:
            continue
        quick_s = quantiles((sample.took_s for sample in samples), n=10)[0]
        during = [sample.took_s > SLOW * quick_s for sample in samples if begin_s <= sample.at_s <= end_s]
        slow, seen = slow + sum(during), seen + len(during)
    return slow / seen if seen else 0.0
