"""Steps the user's optimizer on small weights, and looks at what it holds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from nfold.capture.computing.random import seed_all
from nfold.capture.optimizers.step_scope import Values, give_gradients, parameters_of
from nfold.capture.optimizers.stepping import Stepper, Stepping
from nfold.capture.optimizers.update_scope import examples, small, trained_in
from nfold.capture.side_effects.held_values import alike, held_by
from nfold.errors import ProgramError
from nfold.program import describe

SPLITS = (2, 12)
"""Steps after which the state is taken out. Between them gradients stay the same, since what an optimizer estimates of
the way to its goal grows only then; before and behind them they turn."""
MORE = 2


@dataclass(frozen=True, slots=True)
class Subject:
    """An optimizer function, and small weights on which it can be tried."""

    stepping: Stepping
    values: Values
    sparse: Mapping[str, int]
    """Weights whose gradients are sparse, and in how many dimensions."""
    kind: str = ""


class Run:
    """One optimizer that is being stepped on small weights."""

    def __init__(self, subject: Subject, values: Values, step: int = 0) -> None:
        self._sparse, self._first = subject.sparse, values
        weights = parameters_of(values)
        self.parameters = [weight for _, weight in weights]
        self.stepper: Stepper = subject.stepping.build(weights)
        self.stepper.replay(step)
        self._played, self._is_over = step, False

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.stepper.optimizer

    def play(self, begin: int, end: int, like: "Run | None" = None) -> None:
        """Take steps `begin` to `end`, with the gradients of another run if `like` gives one."""
        first = self._first if like is None else like._first
        for step in range(begin, end):
            turn = step if step >= SPLITS[1] else min(step, SPLITS[0])
            give_gradients(self.parameters, first, self._sparse, turn)
            seed_all(step)
            self.optimizer.step()
            self._played = step + 1
            self.stepper.advance(step + 1)

    def play_to(self, end: int) -> None:
        """Take all steps before `end`, as far as the schedule lasts."""
        while self._played < end and not self._is_over:
            try:
                self.play(self._played, self._played + 1)
            except ProgramError:
                self._is_over = True

    @property
    def values(self) -> list[torch.Tensor]:
        return [parameter.detach() for parameter in self.parameters]

    def held(self) -> dict[tuple[str, ...], Any]:
        """Return all that the optimizer and its schedule keep, by where they keep it."""
        schedule = self.stepper.scheduler
        found = held_by(self.optimizer, self.parameters, but=[schedule])
        if schedule is not None:
            kept = held_by(schedule, self.parameters, but=[self.optimizer])
            found |= {(".schedule", *path): each for path, each in kept.items() if path[:1] != ("._last_lr",)}
        return found


def same(one: Run, other: Run) -> bool:
    return all(map(alike, one.values, other.values))


def tried_on(stepping: Stepping, model: nn.Module, sparse: Mapping[str, int]) -> Subject:
    """Return the optimizer on the smallest weights on which it steps.

    Raises:
        ProgramError: it steps on none.
    """
    last: Exception | None = None
    kind = "the optimizer"
    for values in _candidates(stepping, model, sparse):
        try:
            subject = Subject(stepping, values(), sparse)
            run = Run(subject, subject.values)
            kind = type(run.optimizer).__qualname__
            run.play(0, SPLITS[0])
            return replace(subject, kind=kind)
        except Exception as error:
            last = error
    assert last is not None, "there are candidates"
    if isinstance(last, ProgramError):
        raise last
    raise ProgramError(
        f"step() of {kind}, which Program(optimizer=...) returns, raised {describe(last)} on gradients of the layouts "
        "that the program has. It is called once for each batch, without a closure: one that evaluates the loss "
        "several times in a step, as LBFGS and SAM do, cannot be used. Take SGD, Adam or another whose step() needs "
        "only gradients."
    ) from last


def _candidates(stepping: Stepping, model: nn.Module, sparse: Mapping[str, int]) -> Iterator[Callable[[], Values]]:
    trained = trained_in(model)
    yield lambda: examples(stepping, trained, sparse)
    # One that looks for weights by name finds all of them.
    yield lambda: [(name, small(each.ndim, each.dtype, seed)) for seed, (name, each) in enumerate(trained)]
    yield lambda: trained
