"""What a run's wall time went to, from what the coordinator hears: each stretch belongs to the event that ends it."""

from collections.abc import Callable

from nfold.analysis.ledger import STEPS
from nfold.runtime import events as ev

_ENDED_BY: dict[type, str] = {
    ev.RanksStarted: "start-up",
    ev.Planned: "profiling, planning",
    ev.TrainingBegins: "building",
    ev.StepDone: STEPS,
    ev.Evaluated: "evaluation",
    ev.KeepCheckpoint: "checkpoints",
    ev.Finished: "ending",
}
"""Other events happen beside what goes on and end nothing."""


class Phases:
    """A ledger whose entries sum to the time from its making to the last entry, since every instant is in one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since_s = clock()
        self._seconds: dict[str, float] = {}

    def happened(self, happening: object) -> None:
        """Book the time since the last entry, if this ends something."""
        phase = _ENDED_BY.get(type(happening))
        if phase is not None:
            self._book(phase)

    def returned(self) -> None:
        """Book what the user's own loop over the steps took."""
        self._book("your own loop")

    def close(self) -> dict[str, float]:
        """Book what is left, and return seconds by phase, in the order in which they began."""
        self._book("ending")
        return dict(self._seconds)

    def _book(self, phase: str) -> None:
        now_s = self._clock()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now_s - self._since_s
        self._since_s = now_s
