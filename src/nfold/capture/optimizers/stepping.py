"""Builds the user's optimizer and its schedule over any weights: those of a model, or pieces of them on some rank.

Every rank that updates has optimizers of its own, so each gets a schedule of its own. Schedules are played again when a
run goes on: what they do is a function of the step, so nothing of them has to be kept.
"""

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from nfold.capture.side_effects.refusals import refuse_in_backward
from nfold.errors import ProgramError
from nfold.program import Program, describe

OptimizerFactory = Callable[[Any], torch.optim.Optimizer]
SchedulerFactory = Callable[[torch.optim.Optimizer], LRScheduler]
Weights = Sequence[tuple[str, nn.Parameter]]
"""The user's names and tensors."""

NAMED = "named_parameters"
"""What the argument of an optimizer function is called that wants names too."""


@dataclass(frozen=True, slots=True)
class Stepping:
    """The optimizer and schedule functions of a program."""

    optimizer: OptimizerFactory
    scheduler: SchedulerFactory | None = None
    takes_names: bool = field(init=False)
    """Whether the optimizer function wants (name, parameter) pairs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "takes_names", _takes_names(self.optimizer))  # 0.3 ms, for a few per weight

    @classmethod
    def of(cls, program: Program) -> "Stepping":
        """Return the optimizer and schedule functions of a program."""
        return cls(program.optimizer, program.scheduler)

    def build(self, weights: Weights) -> "Stepper":
        """Build the optimizer, and its schedule, over some weights.

        Raises:
            ProgramError: the user's functions lost some of several weights with one name, or refused, or that of the
                optimizer registers hooks on gradients.
        """
        before = _num_hooks(weights)
        optimizer = self.optimizer(list(weights) if self.takes_names else [weight for _, weight in weights])
        if _num_hooks(weights) > before:
            refuse_in_backward("Program(optimizer=...) registers hooks on the gradients of weights")
        return Stepper(optimizer, None if self.scheduler is None else self._schedule(self.scheduler, optimizer))

    def _schedule(self, factory: SchedulerFactory, optimizer: torch.optim.Optimizer) -> LRScheduler:
        try:
            scheduler = factory(optimizer)
        except Exception as error:
            raise ProgramError(f"Program(scheduler=...) raised {describe(error)}. {_EXAMPLE}") from error
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ProgramError(
                "ReduceLROnPlateau follows a measured loss, and ranks would have to wait for it before each update. "
                "Use a schedule that follows from the step alone, such as CosineAnnealingLR or LambdaLR."
            )
        if not isinstance(scheduler, LRScheduler):
            raise ProgramError(
                f"Program(scheduler=...) must return a schedule of torch.optim.lr_scheduler, it returned "
                f"{type(scheduler).__name__}. {_EXAMPLE}"
            )
        if scheduler.optimizer is not optimizer:
            raise ProgramError(
                "Program(scheduler=...) returned a schedule of another optimizer than the one that it was given. Each "
                f"rank has optimizers of its own. {_EXAMPLE}"
            )
        return scheduler


def _num_hooks(weights: Weights) -> int:
    return sum(
        len(weight._backward_hooks or ()) + len(weight._post_accumulate_grad_hooks or ()) for _, weight in weights
    )


def _takes_names(optimizer: OptimizerFactory) -> bool:
    try:
        parameters = list(inspect.signature(optimizer).parameters)
    except (TypeError, ValueError):
        return False  # a function without a signature, such as a builtin
    return parameters[:1] == [NAMED]


_EXAMPLE = "Write lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)."


class Stepper:
    """An optimizer and its schedule."""

    def __init__(self, optimizer: torch.optim.Optimizer, scheduler: LRScheduler | None) -> None:
        self.optimizer, self.scheduler = optimizer, scheduler
        self._position = 0

    @property
    def position(self) -> int:
        """The number of times that the schedule has been stepped."""
        return self._position

    def advance(self, step: int) -> None:
        """Step the schedule to where it is after so many steps; it never goes back.

        Raises:
            ProgramError: the schedule does not go so far.
        """
        while self.scheduler is not None and self._position < step:
            self._advance_once(self.scheduler)

    def replay(self, step: int) -> None:
        """Step the schedule in the same way where the optimizer has not taken these steps itself. 5 to 20 us a step.

        Raises:
            ProgramError: the schedule does not go so far.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
            self.advance(step)

    def lasts(self, steps: int) -> tuple[int, str] | None:
        """Return the step after which the schedule fails before `steps`, and what it raises; None: it lasts."""
        try:
            self.replay(steps)
        except ProgramError as error:
            return self._position, describe(error.__cause__ or error)
        return None

    def _advance_once(self, scheduler: LRScheduler) -> None:
        try:
            scheduler.step()
        except Exception as error:
            raise ProgramError(
                f"Program(scheduler=...) raised {describe(error)} after step {self._position + 1}. It is called once "
                "for each step of the optimizer, so it must last for all steps of the run."
            ) from error
        self._position += 1
