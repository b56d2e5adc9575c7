"""What one rule has to say about a run: a cause of lost time that could be the verdict."""

from dataclasses import dataclass

from nfold.core.report import VerdictClass

HALF = 0.5
"""What takes more than half of a time is its reason: no other one can be larger."""
CauseKind = VerdictClass | str
"""A verdict class, or a part of the step that is only ever a cause (`update`, `other`, `shared cores`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A cause with its numbers and what to do about it."""

    kind: CauseKind
    place: str
    lost_s: float
    """Seconds per step, as measured: with those of the other findings they make the step."""
    evidence: str
    verdict: VerdictClass | None = None
    """The class under which it can be the verdict; None when it only explains."""
    sub_cause: str = ""
    value: float = 0.0
    unit: str = "ms"
    head: str = ""
    """The verdict as a sentence: what, where, how much."""
    remedy: str = ""
    """What to do, where nothing was simulated or nothing simulated helps."""
    next_command: str = ""
    """`{file}` stands for the user's program."""
    node: str = ""
    """That it is about, if it is about one."""
    side: str = ""
    """`uplink` or `downlink` of that node."""
    regained_s: float | None = None
    """Seconds per step that would be won without it, simulated: less than what it takes where something else would take
    its place (a slow rank gives the others' messages time to travel). None where no simulation resembles the run."""

    @property
    def weight_s(self) -> float:
        """What the verdict is chosen by: seconds per step won without it, or lost to it where no simulation says so."""
        return self.lost_s if self.regained_s is None else self.regained_s
