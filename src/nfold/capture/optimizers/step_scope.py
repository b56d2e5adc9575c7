"""Compares an optimizer's steps on all weights with those on each alone and on pieces, and looks into their code."""

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

import torch
from torch import nn

from nfold.capture.computing.step_outcome import close
from nfold.capture.optimizers.step_code import StepCode, Use
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.optimizers.touched_rows import touched_only

Scope = Literal["element", "parameter", "model"]
Values = Sequence[tuple[str, torch.Tensor]]
"""Weights, or pieces of them, by the names of the parameters that they are of."""

_ONWARD = 12
"""First steps to try, the same way: what an optimizer estimates of the way to its goal begins to grow only then."""
_SIZES = (1e-3, 1.0, 1e6)
"""Of the gradients of the next ones: a limit on their norm shows at one of them, whatever it is."""
_PERIOD = 50
LATE = 1000
"""Steps to try of an optimizer that is not torch's: it may look at a weight as a whole only after a warm-up."""


class _Play(Protocol):
    def __call__(
        self, stepping: Stepping, groups: Sequence[Values], sparse: Mapping[str, int], code: StepCode | None = None
    ) -> list[torch.Tensor]: ...


def step_scope(stepping: Stepping, values: Values, sparse: Mapping[str, int]) -> tuple[Scope, list[Use]]:
    """Compare a few steps on all weights with those on each alone and on slices.

    Args:
        stepping: the user's.
        values: of small stand-ins for weights.
        sparse: weights whose gradients are sparse, and in how many dimensions.

    Returns:
        How far these steps can be cut, and where their code may look at a weight as a whole. Where that code is torch's
        alone, it does the same at each step.
    """
    code = StepCode()
    scope = _scope_of(updated, stepping, values, sparse, code)
    if not code.is_empty:
        scope = wider(scope, _scope_of(_updated_for_long, stepping, values, sparse, code))
    kind = type(_built(stepping, values)[0])
    return scope, code.uses(kind)


def wider(one: Scope, other: Scope) -> Scope:
    """Return the wider of two scopes, which needs more of a weight at once."""
    scopes: tuple[Scope, ...] = ("element", "parameter", "model")
    return max(one, other, key=scopes.index)


def _scope_of(play: _Play, stepping: Stepping, values: Values, sparse: Mapping[str, int], code: StepCode) -> Scope:
    together = play(stepping, [values], sparse, code)
    if not _equal(together, play(stepping, [[value] for value in values], sparse)):
        return "model"
    apart = play(stepping, [[(name, piece)] for name, value in values for piece in sliced(value)], sparse)
    pieces = [piece for value in together for piece in sliced(value)]
    return "element" if _equal(pieces, apart) else "parameter"


def sliced(value: torch.Tensor) -> list[torch.Tensor]:
    """Return a weight as two flat runs of its elements, as shards of a bucket cut it."""
    flat = value.reshape(-1)
    half = flat.numel() // 2
    return [flat[:half], flat[half:]] if half else [flat]


def parameters_of(values: Values) -> list[tuple[str, nn.Parameter]]:
    """Return weights to step, copies of some values."""
    return [(name, nn.Parameter(value.detach().clone())) for name, value in values]


def give_gradients(
    parameters: Sequence[nn.Parameter], values: Values, sparse: Mapping[str, int], turn: int, size: float = 1.0
) -> None:
    """Give weights gradients made of each element's value, so that a slice of a weight gets the slice of its own.

    Args:
        parameters: to give them to.
        values: of the same weights, from which gradients are made.
        sparse: weights whose gradients are sparse, and in how many dimensions.
        turn: others for each.
        size: what they are multiplied by.
    """
    for parameter, (name, value) in zip(parameters, values, strict=True):
        parameter.grad = _gradient(name, value, sparse, turn, size)


def _gradient(name: str, value: torch.Tensor, sparse: Mapping[str, int], turn: int, size: float = 1.0) -> torch.Tensor:
    return touched_only(torch.sin(value * 7.0 + turn) * size, sparse.get(name, 0))


def updated(
    stepping: Stepping, groups: Sequence[Values], sparse: Mapping[str, int], code: StepCode | None = None
) -> list[torch.Tensor]:
    """Take a few steps with one optimizer for each group.

    Args:
        stepping: the user's.
        groups: weights that are updated together, from the same values each time.
        sparse: weights with sparse gradients, and in how many dimensions.
        code: watches the steps.

    Returns:
        All weights after the first step, then all after the second, and so on.
    """
    turns = [(0, 1.0)] * _ONWARD + list(enumerate(_SIZES, 1))
    histories: list[list[torch.Tensor]] = [[] for _ in turns]
    for group in groups:
        optimizer, parameters = _built(stepping, group)
        for (turn, size), history in zip(turns, histories, strict=True):
            give_gradients(parameters, group, sparse, turn, size)
            with _watched(code):
                optimizer.step()
            history += [parameter.detach().clone() for parameter in parameters]
    return list(itertools.chain(*histories))


def _updated_for_long(
    stepping: Stepping, groups: Sequence[Values], sparse: Mapping[str, int], code: StepCode | None = None
) -> list[torch.Tensor]:
    """Take many steps with one optimizer per group; return all weights after the last one, where they are numbers."""
    found: list[torch.Tensor] = []
    for group in groups:
        optimizer, parameters = _built(stepping, group)
        gradients = [[_gradient(*each, sparse, turn) for each in group] for turn in (0, 1, 2)]
        for step in range(LATE):
            for parameter, gradient in zip(parameters, gradients[step % len(gradients)], strict=True):
                parameter.grad = gradient.clone()
            with _watched(code if _is_watched(step) else None):
                optimizer.step()
        found += [parameter.detach().nan_to_num() for parameter in parameters]
    return found


def _built(stepping: Stepping, values: Values) -> tuple[torch.optim.Optimizer, list[nn.Parameter]]:
    weights = parameters_of(values)
    return stepping.build(weights).optimizer, [parameter for _, parameter in weights]


def _is_watched(step: int) -> bool:
    """Tell whether to watch a step of many: those that every fifth, tenth or fiftieth is among."""
    return step % _PERIOD >= _PERIOD - 2


def _watched(code: StepCode | None) -> AbstractContextManager[None]:
    return code.watch() if code is not None else contextlib.nullcontext()


def _equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(close(a, b) for a, b in zip(one, other, strict=True))
