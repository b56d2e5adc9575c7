"""Decides when links are worth probing again: an exchange has been slower than expected for a while. Pure.

    transfer of a bucket in a step   the least of its durations over the ranks: who came last waited for nobody
    waits                            of each rank, where activations travel or nobody waits for a common step
    slow                             its median over 20 steps is more than 1.5 times what was predicted, and 5 ms more

What was slow once is what is expected from then on, so links that stay slow are not probed again and again; but when it
is as fast again as it was, that is worth a probe, too. After each probe of a run the next one is further away, so that
links which come and go do not keep it from training.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from nfold.core.trace import ReductionParts, StepParts, StepTrace, transfers_s

NUM_STEPS = 20
FACTOR = 1.5
LEAST_EXCESS_S = 0.005
"""A probe of all links takes seconds; what costs less than this in a step is not worth it."""
WAITS_SHARE = 0.25
"""Of a step: what ranks wait is the rest of what they compute, so all that is not predicted shows in it."""
_FIRST = frozenset({"reduce", "push"})
"""Messages of a rank's own gradients."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnexpectedTime:
    """Something that has taken longer or less than expected for a while."""

    what: str
    expected_s: float
    measured_s: float


class ProbeSpacing:
    """How far apart the probes of a run are, whatever generations it has."""

    def __init__(self) -> None:
        self._num_probes = self._rest = 0

    def probed(self) -> None:
        """Note that links have been probed."""
        self._rest = NUM_STEPS * (2**self._num_probes - 1)
        self._num_probes += 1

    def count_step(self) -> bool:
        """Count a step; return whether it is far enough from the last probe to be looked at."""
        if not self._rest:
            return True
        self._rest -= 1
        return False


class Slowness:
    """Watches what a step exchanges: `times_s` of it."""

    def __init__(self, expected_s: Mapping[str, float], spacing: ProbeSpacing | None = None) -> None:
        """Expect what was predicted.

        Args:
            expected_s: of all that is watched.
            spacing: of the run's probes so far; None: there were none.
        """
        self._predicted_s, self._expected_s = dict(expected_s), dict(expected_s)
        self._spacing = spacing or ProbeSpacing()
        self._recent_s: dict[str, deque[float]] = {name: deque(maxlen=NUM_STEPS) for name in expected_s}

    def take(self, times_s: Mapping[str, float]) -> UnexpectedTime | None:
        """Take in a step and return what surprises most; None: nothing does."""
        if not self._spacing.count_step():
            return None
        for name, seconds in times_s.items():
            if name in self._recent_s:
                self._recent_s[name].append(seconds)
        found = [surprise for name in self._expected_s if (surprise := self._look(name)) is not None]
        return max(found, key=_size, default=None)

    def accept(self) -> None:
        """Expect from now on what was measured last; called when links have been probed."""
        for name, seconds in self._recent_s.items():
            if seconds:
                self._expected_s[name] = max(self._predicted_s[name], median(seconds))
                seconds.clear()
        self._spacing.probed()

    def _look(self, name: str) -> UnexpectedTime | None:
        recent_s, expected_s = self._recent_s[name], self._expected_s[name]
        if len(recent_s) < NUM_STEPS:
            return None
        measured_s = median(recent_s)
        was_slow = expected_s > self._predicted_s[name]
        if not (_is_longer(measured_s, expected_s) or (was_slow and _is_longer(expected_s, measured_s))):
            return None
        return UnexpectedTime(what=name, expected_s=expected_s, measured_s=measured_s)


def _is_longer(one_s: float, other_s: float) -> bool:
    return one_s > max(FACTOR * other_s, other_s + LEAST_EXCESS_S)


def _size(surprise: UnexpectedTime) -> float:
    one_s, other_s = sorted((max(surprise.expected_s, 1e-9), max(surprise.measured_s, 1e-9)))
    return other_s / one_s


def times_s(parts: Iterable[StepParts], reductions: Iterable[ReductionParts]) -> dict[str, float]:
    """Return how long everything took that may be watched in one step of all ranks."""
    transfers = {_transfer(name): seconds for name, seconds in transfers_s(reductions).items()}
    return transfers | {_wait(each.rank): each.communication_s for each in parts}


def expected_waits_s(waits_s: Iterable[float], step_s: float) -> dict[str, float]:
    """Return what to expect of ranks that wait so long in a step; less than a quarter of it is not told apart."""
    return {_wait(rank): max(seconds, WAITS_SHARE * step_s) for rank, seconds in enumerate(waits_s)}


def expected_times_s(step: StepTrace) -> dict[str, float]:
    """Return what to expect of a synchronous plan, from a simulated step.

    Where activations travel, what each rank waits is watched, too: of those no reduction tells.
    """
    begin_s: dict[tuple[str, int], float] = {}
    end_s: dict[tuple[str, int], float] = {}
    waits_s = [max(step.step_s)] * len(step.step_s)
    for span in step.spans:
        key = (span.reduction, span.rank)
        if span.kind == "SEND" and span.purpose in _FIRST:
            begin_s[key] = min(span.start_s, begin_s.get(key, span.start_s))
        if span.kind in ("SEND", "RECV"):
            end_s[key] = max(span.end_s, end_s.get(key, span.end_s))
        else:
            waits_s[span.rank] -= span.end_s - span.start_s
    least: dict[str, float] = {}
    for (name, rank), start_s in begin_s.items():
        seconds = end_s[name, rank] - start_s
        least[name] = min(seconds, least.get(name, seconds))
    is_cut = any(span.purpose == "activation" for span in step.spans)
    waits = expected_waits_s(waits_s, max(step.step_s)) if is_cut else {}
    return {_transfer(name): seconds for name, seconds in least.items()} | waits


def _transfer(reduction: str) -> str:
    return f"the reduction of {reduction}"


def _wait(rank: int) -> str:
    return f"waiting of rank {rank} for messages"
