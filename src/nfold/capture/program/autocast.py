"""Lets a program compute its forward and its loss under autocast, wherever they are called.

A cast of a weight is not kept for its next use (`cache_enabled=False`): otherwise a weight that is used twice would get
its gradient added up in the coarse type, or not, depending on where the program is cut.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.tree import tensors_of
from nfold.capture.program.program_graph import Loss
from nfold.errors import ProgramError
from nfold.program import Program

_PLAIN = "nfold_plain_class"
"""Attribute of the classes made here: the user's own class."""


def under_autocast(program: Program) -> Program:
    """Return a program whose model and loss compute under the autocast that it asks for."""
    if program.autocast is None:
        return program
    dtype = getattr(torch, program.autocast)
    return replace(program, model=_Model(program.model, dtype), loss=AutocastLoss(program.loss, dtype), autocast=None)


@dataclass(frozen=True, slots=True)
class _Model:
    """Builds the user's module, to be called under autocast."""

    build: Callable[[], nn.Module]
    dtype: torch.dtype

    def __call__(self) -> nn.Module:
        model = self.build()
        return _called_under(model, self.dtype) if isinstance(model, nn.Module) else model


class AutocastLoss:
    """The user's loss under autocast."""

    def __init__(self, loss: Loss, dtype: torch.dtype) -> None:
        self.loss, self._dtype = loss, dtype
        self.__name__ = getattr(loss, "__name__", type(loss).__name__)

    def __call__(self, outputs: Any, targets: Any) -> torch.Tensor:
        """Compute the loss."""
        device = next((tensor.device.type for tensor in tensors_of(outputs)), "cpu")
        with torch.autocast(device, dtype=self._dtype, cache_enabled=False):
            return self.loss(outputs, targets)


def plain_loss(loss: Loss) -> Loss:
    """Return the user's own loss, without the autocast of `under_autocast` if it has any."""
    return loss.loss if isinstance(loss, AutocastLoss) else loss


@contextlib.contextmanager
def without_autocast(model: nn.Module) -> Iterator[None]:
    """Let a module be called without the autocast of `under_autocast`, if it has any."""
    kind = type(model)
    model.__class__ = getattr(kind, _PLAIN, kind)
    try:
        yield
    finally:
        model.__class__ = kind


def _called_under(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Give a module a class of its own, so that copies of it and all of its names stay what they are."""
    kind: Any = type(model)

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        device = next(self.parameters()).device.type
        with torch.autocast(device, dtype=dtype, cache_enabled=False):
            return kind.__call__(self, *args, **kwargs)

    own = {"__call__": call, _PLAIN: kind}
    own |= {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    try:
        model.__class__ = type(kind.__name__, (kind,), own)
    except TypeError as error:
        raise ProgramError(
            f"Program(autocast=...) cannot wrap a {kind.__name__}: {error}. Leave it out, and write "
            "`with torch.autocast(...)` in the model's forward."
        ) from error
    return model
