"""Keeps what a long run measures within bounds: fewer steps, and longer samples."""

from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from nfold.core.trace import SystemSample

Row = TypeVar("Row")


@dataclass(slots=True)
class Thinned(Generic[Row]):
    """Rows of every step, or of every second one once they are too many, then of every fourth, and so on."""

    most: int
    """Rows to keep."""
    steps: list[tuple[Row, ...]] = field(default_factory=list)
    every: int = 1
    num_steps: int = 0
    """That were taken in."""
    _num_rows: int = 0

    def keep(self, rows: tuple[Row, ...]) -> None:
        """Take in the rows of the next step."""
        self.num_steps += 1
        if (self.num_steps - 1) % self.every:
            return
        self.steps.append(rows)
        self._num_rows += len(rows)
        while self._num_rows > self.most and len(self.steps) > 1:
            self.every *= 2
            self.steps = self.steps[::2]
            self._num_rows = sum(map(len, self.steps))

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows that are kept, step by step."""
        return tuple(row for rows in self.steps for row in rows)


@dataclass(slots=True)
class SystemSamples:
    """Samples of all ranks. Once they are too many, two that follow each other become one of twice the length."""

    most: int
    _samples: list[SystemSample] = field(default_factory=list)
    _together: int = 1
    _unfinished: dict[int, tuple[int, SystemSample]] = field(default_factory=dict)
    """By rank: how many samples are in one that is not long enough yet."""

    def keep(self, samples: tuple[SystemSample, ...]) -> None:
        """Take in new samples, of each rank in the order of time."""
        for sample in samples:
            count, before = self._unfinished.pop(sample.rank, (0, None))
            joined = joined_samples(before, sample) if before is not None else sample
            if count + 1 < self._together:
                self._unfinished[sample.rank] = (count + 1, joined)
            else:
                self._samples.append(joined)
        if len(self._samples) > self.most:
            self._together *= 2
            self._samples = _pairs(self._samples)

    @property
    def rows(self) -> tuple[SystemSample, ...]:
        """All samples that are kept, rank by rank in the order of time."""
        every = [*self._samples, *(sample for _, sample in self._unfinished.values())]
        return tuple(sorted(every, key=lambda sample: (sample.rank, sample.at_s)))


def joined_samples(earlier: SystemSample, later: SystemSample) -> SystemSample:
    """Return one sample for the time of two that follow each other; of memory the larger."""
    return replace(
        later,
        span_s=earlier.span_s + later.span_s,
        compute_cpu_s=earlier.compute_cpu_s + later.compute_cpu_s,
        communication_cpu_s=earlier.communication_cpu_s + later.communication_cpu_s,
        throttled_s=earlier.throttled_s + later.throttled_s,
        steal_s=earlier.steal_s + later.steal_s,
        neighbours_cpu_s=earlier.neighbours_cpu_s + later.neighbours_cpu_s,
        rss_bytes=max(earlier.rss_bytes, later.rss_bytes),
        sent_bytes=earlier.sent_bytes + later.sent_bytes,
        received_bytes=earlier.received_bytes + later.received_bytes,
        disk_bytes=earlier.disk_bytes + later.disk_bytes,
    )


def _pairs(samples: list[SystemSample]) -> list[SystemSample]:
    waiting: dict[int, SystemSample] = {}
    pairs = []
    for sample in samples:
        if sample.rank in waiting:
            pairs.append(joined_samples(waiting.pop(sample.rank), sample))
        else:
            waiting[sample.rank] = sample
    return [*pairs, *waiting.values()]
