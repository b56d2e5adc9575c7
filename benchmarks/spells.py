"""Tells when a machine that others share computed slowly, so that what was measured then can be measured again.

Its neighbours can slow a processor down to half for some seconds, of which no counter tells. A fixed piece of work,
repeated on each processor beside all else, does: it takes a hundredth of their time. A hypervisor can also give
processors to others for a while, and that is counted.
"""

import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple, Self

from nfold.machine.kernel_counters import node_cpu_s

PROC_STAT = Path("/proc/stat")
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


class Stolen(NamedTuple):
    """What the hypervisor has given to others since the machine began: a total over its processors."""

    at_s: float
    total_s: float


class Watch:
    """Samples every processor in the background, from `with` to its end."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._samples: dict[int, list[Sample]] = {cpu: [] for cpu in os.sched_getaffinity(0)}
        self._stolen: list[Stolen] = []
        self._threads = [threading.Thread(target=self._run, args=(cpu,), daemon=True) for cpu in self._samples]
        self._threads.append(threading.Thread(target=self._count, daemon=True))

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

    def stolen_share(self, begin_s: float, end_s: float) -> float:
        """Return the part of all processors' time that others were given meanwhile."""
        return stolen_share(self._stolen, len(self._samples), begin_s, end_s)

    def _count(self) -> None:
        ticks_per_s = os.sysconf("SC_CLK_TCK")
        while not self._ended.wait(EVERY_S):
            _, stolen_s = node_cpu_s(PROC_STAT.read_text(), ticks_per_s)
            self._stolen.append(Stolen(time.monotonic(), stolen_s))

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


def stolen_share(counted: Sequence[Stolen], processors: int, begin_s: float, end_s: float) -> float:
    """Return what was stolen in a time as a part of all that the processors had; 0 of less than two counts."""
    during = [each for each in counted if begin_s <= each.at_s <= end_s]
    if len(during) < 2:
        return 0.0
    first, last = during[0], during[-1]
    return (last.total_s - first.total_s) / (processors * (last.at_s - first.at_s))
