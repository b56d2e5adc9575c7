"""Measured seconds and bytes of a program on one kind of device."""

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """The median and spread of repeated measurements, in seconds."""

    median_s: float
    spread_s: float
    """Distance between the quartiles."""
    repeats: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkTiming:
    """The forward and backward times of an operator or a model for chunks of one size."""

    chunk_size: int
    forward: Timing
    backward: Timing


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How fast a rank computes while all other ranks compute too."""

    mean_s: float
    """Of one forward and backward of a chunk."""
    deviation_s: float
    """Standard deviation of one pass."""
    bookkeeping_s: float
    """Processor seconds of a fixed bit of Python: a lock, a few entries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorProfile:
    """The times and saved bytes of one operator, for every chunk size that was measured, in ascending order."""

    operator: str
    timings: tuple[ChunkTiming, ...]
    saved_bytes_per_sample: float
    """Kept from its forward to its backward; what a neighbour keeps as well counts for the first that does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """What a program costs on one kind of device with a given number of threads."""

    device_kind: str
    num_threads: int
    operators: tuple[OperatorProfile, ...]
    whole: tuple[ChunkTiming, ...]
    """The whole model and loss at once, at every chunk size that was measured (ascending)."""
    update: Timing
    """One optimizer step over all trained parameters."""
    load_s_per_sample: float
    """Reading and collating one sample, by one who reads alone."""
    parameter_bytes: int
    optimizer_bytes: int
    """State that the optimizer keeps."""
    activation_bytes_per_sample: float
    """Kept from forward to backward by the whole model."""
    base_bytes: int
    """Resident memory of a process that has computed and holds no model, and has followed no program."""
    peak_bytes: int
    """Most resident memory seen while profiling."""
    tracer_bytes: int = 0
    """What the process that measured holds beyond, since it has followed the program."""
    profiler: int = 0
    """The rank that measured."""
    update_call_s: float = 3e-4
    """An optimizer step over one small tensor."""
    load_wait: float = 0.0
    """Share of the seconds of reading in which no processor works on it: a disk does, or a network."""
    loaders: int = 0
    """Processes that read for a rank side by side, as many as cores allow; 0: a thread of the rank reads."""
    loaders_bytes: int = 0
    """Resident memory of all loaders of a rank."""

    @property
    def reading_cores(self) -> float:
        """Return how many cores are kept busy by the processes that read samples for one rank."""
        return max(1, self.loaders) * (1.0 - self.load_wait) if self.load_s_per_sample > 0 else 0.0

    @property
    def read_s_per_sample(self) -> float:
        """Return the seconds from one sample to the next when a rank's loader processes do nothing else."""
        return self.load_s_per_sample / max(1, self.loaders)

    @property
    def process_bytes(self) -> int:
        """Return the bytes that a rank and its loader processes hold before there is a model or a batch."""
        return self.base_bytes + self.loaders_bytes

    def load_s(self, num_samples: float, speed: float = 1.0) -> float:
        """Return the seconds that reading samples takes on a node.

        Args:
            num_samples: to read.
            speed: of the node, relative to the one that was profiled.
        """
        return self.read_s_per_sample * num_samples * self.load_share(speed)

    def load_share(self, speed: float) -> float:
        """Return the time of reading on a node divided by the profiled time.

        Only computing scales with the node's relative speed; waiting for a disk or a network takes the same time.
        """
        return self.load_wait + (1.0 - self.load_wait) / speed

    @property
    def call_s(self) -> float:
        """The least seconds that an optimizer step takes, however few weights it updates."""
        return min(self.update.median_s, self.update_call_s)

    def update_s(self, share: float) -> float:
        """Return the seconds of an optimizer step over a share, from 0 to 1, of the weights' elements."""
        return self.call_s + (self.update.median_s - self.call_s) * share

    def whole_s(self, chunk_size: float) -> tuple[float, float]:
        """Return forward and backward seconds of the whole model for a chunk."""
        return _interpolate(self.whole, chunk_size)

    def operators_s(self, chunk_size: float) -> dict[str, tuple[float, float]]:
        """Return forward and backward seconds of every operator for a chunk. O(operators).

        Operators timed alone pay for being alone, so their times are scaled to add up to the whole model's.
        """
        alone = {profile.operator: _interpolate(profile.timings, chunk_size) for profile in self.operators}
        whole = self.whole_s(chunk_size)
        factors = [_ratio(whole[side], sum(pair[side] for pair in alone.values())) for side in (0, 1)]
        return {name: (pair[0] * factors[0], pair[1] * factors[1]) for name, pair in alone.items()}

    def saved_bytes(self) -> dict[str, float]:
        """Return the bytes per sample that every operator keeps for its backward. O(operators).

        The whole model may keep less than its operators alone do, so they are scaled to add up to it.
        """
        alone = {profile.operator: profile.saved_bytes_per_sample for profile in self.operators}
        factor = _ratio(self.activation_bytes_per_sample, sum(alone.values()))
        return {name: size * factor for name, size in alone.items()}


def _interpolate(timings: tuple[ChunkTiming, ...], chunk_size: float) -> tuple[float, float]:
    """Piecewise linear between the measured sizes; in proportion above the largest, constant below the smallest."""
    sizes = [timing.chunk_size for timing in timings]
    values = [(timing.forward.median_s, timing.backward.median_s) for timing in timings]
    if chunk_size <= sizes[0]:
        return _below(sizes, values, chunk_size)
    if chunk_size >= sizes[-1]:
        factor = chunk_size / sizes[-1]
        return values[-1][0] * factor, values[-1][1] * factor
    right = bisect_left(sizes, chunk_size)
    share = (chunk_size - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
    low, high = values[right - 1], values[right]
    return low[0] + share * (high[0] - low[0]), low[1] + share * (high[1] - low[1])


def _below(sizes: list[int], values: list[tuple[float, float]], chunk_size: float) -> tuple[float, float]:
    """Follow the first slope down, but never below the proportional share."""
    if len(sizes) == 1:
        return values[0]
    slope = [(values[1][side] - values[0][side]) / (sizes[1] - sizes[0]) for side in (0, 1)]
    share = chunk_size / sizes[0]
    forward, backward = (
        min(values[0][side], max(values[0][side] * share, values[0][side] - slope[side] * (sizes[0] - chunk_size)))
        for side in (0, 1)
    )
    return forward, backward


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else 1.0
