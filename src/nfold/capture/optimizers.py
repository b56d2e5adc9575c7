"""Finds out how far an optimizer's update can be cut: by element, by parameter, or not at all."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import torch
from torch import nn

from nfold.capture.compare import close
from nfold.errors import ProgramError
from nfold.program import describe

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Scope = Literal["element", "parameter", "model"]

_SIDES = (6, 4, 3, 2, 2)
_STEPS = 3


def update_scope(factory: OptimizerFactory, model: nn.Module) -> Scope:
    """Compare the optimizer on small weights as a whole, on each alone, and on slices of each. Milliseconds.

    Raises:
        ProgramError: the factory fails, or its optimizer cannot step by itself.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    _try(factory, [nn.Parameter(parameter.detach()) for parameter in trained])
    kinds = dict.fromkeys((parameter.ndim, parameter.dtype) for parameter in trained)
    values = [_small(ndim, dtype, seed) for seed, (ndim, dtype) in enumerate([*kinds, *kinds])]
    try:
        together = _updated(factory, [values])
        alone = _updated(factory, [[value] for value in values])
        slices = [[piece] for value in values for piece in _sliced(value)]
        sliced = _updated(factory, slices)
    except Exception:
        # It works on the model's own weights only, so nothing is known about its pieces.
        return "model"
    if not _equal(together, alone):
        return "model"
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
    """Take a few steps with one optimizer per group; equal elements get equal gradients however they are grouped."""
    updated = []
    for group in groups:
        parameters = [nn.Parameter(value.clone()) for value in group]
        optimizer = factory(parameters)
        for step in range(_STEPS):
            for parameter in parameters:
                parameter.grad = _gradient(parameter, step)
            optimizer.step()
        updated += [parameter.detach() for parameter in parameters]
    return updated


def _gradient(parameter: torch.Tensor, step: int) -> torch.Tensor:
    """Make a gradient from each element's own value, so that a slice of a weight gets the slice of its gradient."""
    return torch.sin(parameter.detach() * 7.0 + step) * (1.0 + step)


def _equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(close(a, b) for a, b in zip(one, other, strict=True))
