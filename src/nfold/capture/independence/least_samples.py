"""Finds out whether a program computes on a single sample: batch statistics over one value per channel do not."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.example import SIZES, Example
from nfold.capture.batches.tree import strided_parts, tensors_of
from nfold.capture.program.calling import call
from nfold.capture.program.program_graph import Loss
from nfold.capture.program.trial import innermost
from nfold.program import describe

_TRIED = 3
"""Single samples of which none may do: one may be unlike others, such as one whose target the loss ignores."""


@dataclass(frozen=True, slots=True)
class Least:
    """See the fields of these names in `ModelGraph`."""

    samples: int = 1
    module: str = ""
    error: str = ""


def find_least(model: nn.Module, loss: Loss, example: Example) -> Least:
    """Try a program on single samples; one forward pass where it computes on one.

    Args:
        model: a throw-away copy in training mode.
        loss: the user's.
        example: where batches come from. The program is known to compute on batches of SIZES.
    """
    found = Least()
    for which in range(_TRIED):
        found = _try_one(model, loss, example.batch(1, which))
        if found.samples == 1:
            break
    return found


def _try_one(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> Least:
    with _watching(model) as failing, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of a deviation of one value; what comes of it is looked at
        try:
            value = loss(call(model, batch[0]), batch[1])
        except Exception as error:
            return Least(min(SIZES), innermost(model, error), describe(error))
    if bool(torch.isfinite(value).all()):
        return Least()
    return Least(min(SIZES), next(iter(failing), ""), "a result that is not a number")


@contextlib.contextmanager
def _watching(model: nn.Module) -> Iterator[list[str]]:
    """Collect the modules that put out what is not a number, the first one first."""
    found: list[str] = []

    def look(name: str, _module: nn.Module, _args: Any, output: Any) -> None:
        parts = (part for each in tensors_of(output) for part in strided_parts(each))
        if any(bool(part.isnan().any()) for part in parts if part.is_floating_point()):
            found.append(name)

    with contextlib.ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.enter_context(module.register_forward_hook(partial(look, name)))
        yield found
