"""What is shown of a run while it lasts: to the terminal, to the user's loop, or to nobody."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nfold.runtime.control import commands as cmd


@dataclass(frozen=True, kw_only=True, slots=True)
class StepInfo:
    """A step as the user's loop sees it."""

    step: int
    """The first is 1."""
    epoch: int
    """The first is 1."""
    loss: float
    step_s: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the evaluation that is due after this step, at the end of an epoch and of the run; empty after other steps."""


class Observer(Protocol):
    """Is told what happens in a run, and may show it."""

    def planned(self, planned: cmd.Planned, folder: Path | None) -> None:
        """The plan has been made, before the first step."""
        ...

    def stepped(self, done: cmd.StepDone) -> None:
        """A step has ended on all ranks."""
        ...

    def evaluated(self, evaluated: cmd.Evaluated) -> None:
        """The test data was evaluated."""
        ...

    def noted(self, text: str) -> None:
        """Something happened that is worth a line."""
        ...


class NullObserver:
    """An observer that shows nothing."""

    def planned(self, planned: cmd.Planned, folder: Path | None) -> None:
        """Show nothing."""

    def stepped(self, done: cmd.StepDone) -> None:
        """Show nothing."""

    def evaluated(self, evaluated: cmd.Evaluated) -> None:
        """Show nothing."""

    def noted(self, text: str) -> None:
        """Show nothing."""
