"""Notices ranks that have fallen silent, from when each was last heard. Pure: time comes with the ticks.

A rank's sign of life comes from a thread of its own, so silence means that its process is stopped or its machine is out
of reach, never that a step is long.
"""

from collections.abc import Collection
from dataclasses import dataclass

from nfold.runtime.control.events import ClockTick

OWN_GAP_S = 5.0
"""Ticks further apart than this mean that we were stopped ourselves, and could hear nobody."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """The seconds for which a rank may be silent."""

    noticed_s: float = 10.0
    """Then the user is told."""
    lost_s: float = 60.0
    """Then the job is given up."""
    loading_s: float = 600.0
    """The same while ranks load the program: reading one large pickle can keep all threads of a process waiting."""


PATIENCE = Patience()


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectedChanges:
    """The ranks that have fallen silent, are heard again or are lost since the last look."""

    silent: tuple[int, ...]
    """Ranks that have just been noticed."""
    back: tuple[int, ...]
    """Ranks that were silent and are not any more."""
    lost: tuple[int, ...]
    """Ranks that are waited for no longer."""


class FailureDetector:
    """Notices silent ranks of one job."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._looked_s = self._awake_s = float("-inf")
        self._silent: set[int] = set()

    def look(self, tick: ClockTick, ranks: Collection[int], *, loading: bool) -> DetectedChanges:
        """Return what is new about some ranks; those that the tick does not tell of cannot fall silent."""
        if tick.now_s - self._looked_s > OWN_GAP_S:
            self._awake_s = tick.now_s
        self._looked_s = tick.now_s
        silence_s = {
            rank: tick.now_s - max(heard_s, self._awake_s) for rank, heard_s in tick.heard_s.items() if rank in ranks
        }
        limit_s = self._patience.loading_s if loading else self._patience.lost_s
        before, self._silent = self._silent, {rank for rank, s in silence_s.items() if s >= self._patience.noticed_s}
        return DetectedChanges(
            silent=tuple(sorted(self._silent - before)),
            back=tuple(sorted((before - self._silent) & set(ranks))),
            lost=tuple(rank for rank, each_s in sorted(silence_s.items()) if each_s >= limit_s),
        )
