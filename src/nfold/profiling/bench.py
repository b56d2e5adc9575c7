"""A captured program with what it takes to measure it."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from nfold.capture import Captured, Example
from nfold.profiling.measure import Meter
from nfold.program import Program


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """A program on the test bench."""

    program: Program
    captured: Captured
    example: Example
    meter: Meter
    after_forward: Callable[[], None]
    """Called when a forward's activations are alive."""

    @property
    def model(self) -> nn.Module:
        """The user's module; its weights change."""
        return self.captured.model
