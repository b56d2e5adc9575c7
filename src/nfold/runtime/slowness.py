"""Decides when links are worth probing again: a reduction has been slower than expected for a while. Pure.

    transfer of a bucket in a step   the least of its durations over the ranks: who came last waited for nobody
    slow                             its median over 20 steps is more than 1.5 times what was predicted, and 5 ms more

What was slow once is what is expected from then on, so links that stay slow are not probed again and again; but when it
is as fast again as it was, that is worth a probe, too. After each probe the next one is further away, so that links
which come and go do not keep a run from training.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from nfold.core.trace import ReductionParts, StepTrace, transfers_s

NUM_STEPS = 20
FACTOR = 1.5
LEAST_EXCESS_S = 0.005
"""A probe of all links takes seconds; what costs less than this in a step is not worth it."""
_FIRST = frozenset({"reduce", "push"})
"""Messages of a rank's own gradients."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surprise:
    """A bucket that takes another time than expected."""

    reduction: str
    expected_s: float
    measured_s: float


class Slowness:
    """Watches the transfers of all buckets."""

    def __init__(self, expected_s: Mapping[str, float]) -> None:
        """Expect what was predicted.

        Args:
            expected_s: the transfer of each bucket; others are not watched.
        """
        self._predicted_s, self._expected_s = dict(expected_s), dict(expected_s)
        self._num_probes = self._rest = 0
        self._recent_s: dict[str, deque[float]] = {name: deque(maxlen=NUM_STEPS) for name in expected_s}

    def take(self, parts: Iterable[ReductionParts]) -> Surprise | None:
        """Take in a step, of all ranks, and return what surprises most; None: nothing does."""
        if self._rest:
            self._rest -= 1
            return None
        for name, seconds in transfers_s(parts).items():
            if name in self._recent_s:
                self._recent_s[name].append(seconds)
        found = [surprise for name in self._expected_s if (surprise := self._look(name)) is not None]
        return max(found, key=_size, default=None)

    def accept(self) -> None:
        """Expect from now on what was measured of late; called when the links have been probed."""
        for name, seconds in self._recent_s.items():
            if seconds:
                self._expected_s[name] = max(self._predicted_s[name], median(seconds))
                seconds.clear()
        self._rest = NUM_STEPS * (2**self._num_probes - 1)
        self._num_probes += 1

    def _look(self, name: str) -> Surprise | None:
        recent_s, expected_s = self._recent_s[name], self._expected_s[name]
        if len(recent_s) < NUM_STEPS:
            return None
        measured_s = median(recent_s)
        was_slow = expected_s > self._predicted_s[name]
        if not (_is_longer(measured_s, expected_s) or (was_slow and _is_longer(expected_s, measured_s))):
            return None
        return Surprise(reduction=name, expected_s=expected_s, measured_s=measured_s)


def _is_longer(one_s: float, other_s: float) -> bool:
    return one_s > max(FACTOR * other_s, other_s + LEAST_EXCESS_S)


def _size(surprise: Surprise) -> float:
    one_s, other_s = sorted((max(surprise.expected_s, 1e-9), max(surprise.measured_s, 1e-9)))
    return other_s / one_s


def expected_transfers_s(step: StepTrace) -> dict[str, float]:
    """Return the same of a simulated step, from its spans."""
    begin_s: dict[tuple[str, int], float] = {}
    end_s: dict[tuple[str, int], float] = {}
    for span in step.spans:
        key = (span.reduction, span.rank)
        if span.kind == "SEND" and span.purpose in _FIRST:
            begin_s[key] = min(span.start_s, begin_s.get(key, span.start_s))
        if span.kind in ("SEND", "RECV"):
            end_s[key] = max(span.end_s, end_s.get(key, span.end_s))
    least: dict[str, float] = {}
    for (name, rank), start_s in begin_s.items():
        seconds = end_s[name, rank] - start_s
        least[name] = min(seconds, least.get(name, seconds))
    return least
