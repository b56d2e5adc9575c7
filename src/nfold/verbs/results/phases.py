"""What a run's wall time went to, from what the coordinator hears: each stretch belongs to the event that ends it."""

from collections.abc import Callable

from nfold.analysis.measured.ledger import STEPS
from nfold.runtime.control import commands as cmd

ENDING = "ending"
SUMMING_UP = "summing up"
"""What-ifs included: each plays the step again."""
WRITING = "writing"

_ENDED_BY: dict[type, str] = {
    cmd.RanksStarted: "start-up",
    cmd.Planned: "planning",
    cmd.TrainingBegins: "building",
    cmd.StepDone: STEPS,
    cmd.Evaluated: "evaluation",
    cmd.KeepCheckpoint: "checkpoints",
    cmd.Unkept: "checkpoints",
    cmd.Finished: ENDING,
}
"""Other events happen beside what goes on and end nothing."""


class Phases:
    """A ledger whose entries sum to the time from its beginning to the last entry, since every instant is in one."""

    def __init__(self, clock: Callable[[], float], begun_s: float | None = None) -> None:
        """Args:
        clock: gives seconds.
        begun_s: by the clock, when the first entry begins; None: now.
        """
        self._clock = clock
        self._since_s = clock() if begun_s is None else begun_s
        self._seconds: dict[str, float] = {}

    def happened(self, happening: object) -> None:
        """Add the time since the last entry to the phase that an event ends, if it ends one."""
        phase = happening.what if isinstance(happening, cmd.Prepared) else _ENDED_BY.get(type(happening))
        if phase is not None:
            self.book(phase)

    def returned(self) -> None:
        """Add the time that the user's own loop over steps took."""
        self.book("your own loop")

    def book(self, phase: str) -> dict[str, float]:
        """Add the time since the last entry to a phase; return seconds by phase, in the order in which they began."""
        now_s = self._clock()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now_s - self._since_s
        self._since_s = now_s
        return dict(self._seconds)
