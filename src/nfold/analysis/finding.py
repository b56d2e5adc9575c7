"""What one rule has to say about a run: a cause of lost time that could be the verdict."""

from dataclasses import dataclass

from nfold.core.report import VerdictClass

CauseKind = VerdictClass | str
"""A verdict class, or a part of the step that is only ever a cause (`update`, `other`, `shared cores`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A cause with its numbers and what to do about it."""

    kind: CauseKind
    place: str
    lost_s: float
    """Seconds per step."""
    evidence: str
    verdict: VerdictClass | None = None
    """The class under which it can be the verdict; None when it only explains."""
    value: float = 0.0
    unit: str = "ms"
    text: str = ""
    """The verdict as one or two sentences, the last one saying what to do."""
    next_command: str = ""
    """`{file}` stands for the user's program."""
