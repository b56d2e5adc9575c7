"""Finds out how far an optimizer's update can be cut: by element, by parameter, or not at all."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import torch
from torch import nn

from nfold.capture.compare import close
from nfold.capture.random import RandomState
from nfold.errors import ProgramError
from nfold.program import describe

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Scope = Literal["element", "parameter", "model"]

_SIDES = (6, 4, 3, 2, 2)
_GRADIENTS = (1e-3, 1.0, 1e6)
"""Sizes of the gradients of the steps to try: a limit on their norm shows at one of them, whatever it is."""


def update_scope(factory: OptimizerFactory, model: nn.Module) -> Scope:
    """Compare the optimizer on small weights as a whole, on each alone, and on slices of each. Milliseconds.

    Raises:
        ProgramError: the factory fails, or its optimizer cannot step by itself.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    _try(factory, [nn.Parameter(parameter.detach()) for parameter in trained])
    kinds = dict.fromkeys((parameter.ndim, parameter.dtype) for parameter in trained)
    values = [_small(ndim, dtype, seed) for seed, (ndim, dtype) in enumerate([*kinds, *kinds])]
    before = RandomState()
    try:
        scope = _wider(_group_scope(factory, trained), _step_scope(factory, values))
    except Exception:
        # It works on the model's own weights only, so nothing is known about its pieces.
        return "model"
    # Noise must be drawn for all weights at once, or it would depend on where each of them is updated.
    return "model" if before.torch_moved() or before.others_moved() else scope


def _wider(one: Scope, other: Scope) -> Scope:
    scopes: tuple[Scope, ...] = ("element", "parameter", "model")
    return max(one, other, key=scopes.index)


def _group_scope(factory: OptimizerFactory, trained: Sequence[nn.Parameter]) -> Scope:
    """Compare what the factory sets for each weight when it sees all of them, one, or a part of one."""
    weights = [parameter.detach() for parameter in trained]
    together = _settings(factory, weights)
    if any(_settings(factory, [weight]) != [setting] for weight, setting in zip(weights, together, strict=True)):
        return "model"
    for weight, setting in zip(weights, together, strict=True):
        # A single element and the rest: a rule about the size of a weight shows.
        pieces = [piece for piece in weight.reshape(-1).tensor_split([1]) if piece.numel()]
        if any(_settings(factory, [piece]) != [setting] for piece in pieces):
            return "parameter"
    return "element"


def _settings(factory: OptimizerFactory, weights: Sequence[torch.Tensor]) -> list[str]:
    """Return the hyper-parameters of each weight, in words; empty if the optimizer leaves it out."""
    parameters = [nn.Parameter(weight) for weight in weights]
    found: dict[int, str] = {}
    for group in factory(parameters).param_groups:
        text = repr(sorted((key, value) for key, value in group.items() if key != "params"))
        found.update((id(parameter), text) for parameter in group["params"])
    return [found.get(id(parameter), "") for parameter in parameters]


def _step_scope(factory: OptimizerFactory, values: Sequence[torch.Tensor]) -> Scope:
    """Compare a few steps on all weights with those on each alone and on slices."""
    together = _updated(factory, [values])
    if not _equal(together, _updated(factory, [[value] for value in values])):
        return "model"
    sliced = _updated(factory, [[piece] for value in values for piece in _sliced(value)])
    pieces = [piece for value in together for piece in _sliced(value)]
    return "element" if _equal(pieces, sliced) else "parameter"


def _try(factory: OptimizerFactory, parameters: list[nn.Parameter]) -> None:
    try:
        optimizer = factory(parameters)
    except Exception as error:
        raise ProgramError(
            f"Program(optimizer=...) raised {describe(error)} when given the {len(parameters)} trainable parameters "
            "of the model. It must be a function of a list of parameters, such as "
            "lambda params: torch.optim.SGD(params, lr=0.1)."
        ) from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ProgramError(
            f"Program(optimizer=...) must return a torch.optim.Optimizer, it returned {type(optimizer).__name__}. "
            "Write lambda params: torch.optim.SGD(params, lr=0.1)."
        )
    given = {id(parameter) for parameter in parameters}
    if any(id(parameter) not in given for group in optimizer.param_groups for parameter in group["params"]):
        raise ProgramError(
            "Program(optimizer=...) returned an optimizer over other parameters than those that it was given. Each "
            "rank has a model of its own, so use the argument: lambda params: torch.optim.SGD(params, lr=0.1)."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ProgramError(
            "LBFGS evaluates the loss several times in a step, which nfold does not do: it computes the gradients "
            "once and steps. Use SGD, Adam or another optimizer whose step() needs no closure."
        )


def _small(ndim: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = [_SIDES[min(axis, len(_SIDES) - 1)] for axis in range(ndim)]
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def _sliced(value: torch.Tensor) -> list[torch.Tensor]:
    """Cut a weight into two runs of elements, as shards of a bucket are."""
    flat = value.reshape(-1)
    half = flat.numel() // 2
    return [flat[:half], flat[half:]] if half else [flat]


def _updated(factory: OptimizerFactory, groups: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """Take a few steps with one optimizer per group; return all weights after the first step, then the second .."""
    histories: list[list[torch.Tensor]] = []
    for group in groups:
        parameters = [nn.Parameter(value.clone()) for value in group]
        optimizer = factory(parameters)
        steps = [_stepped(optimizer, parameters, group, step) for step in range(len(_GRADIENTS))]
        histories += [list(history) for history in zip(*steps, strict=True)]
    return [history[step] for step in range(len(_GRADIENTS)) for history in histories]


def _stepped(
    optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], values: Sequence[torch.Tensor], step: int
) -> list[torch.Tensor]:
    """Step on gradients made of each element's first value, so that a slice of a weight gets the slice of its own."""
    for parameter, value in zip(parameters, values, strict=True):
        parameter.grad = torch.sin(value * 7.0 + step) * _GRADIENTS[step]
    optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


def _equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(close(a, b) for a, b in zip(one, other, strict=True))
