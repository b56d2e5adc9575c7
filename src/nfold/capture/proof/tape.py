"""Remembers what was computed of data alone, to compute it again for any batch: the conditions of a proof.

Outputs of the model without a gradient, as masks, are data to the loss: they are looked at after forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from nfold.capture.proof.rules.calls import tensors_in

Path = tuple[Any, ...]
"""Keys that lead to a tensor of the data; the first is 0 for inputs, 1 for targets, 2 for outputs."""
_MOST_CONSTANT = 1024
_RANDOM = torch.Tag.nondeterministic_seeded


@dataclass(frozen=True, slots=True)
class Step:
    """One operator that was called with data alone."""

    function: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Tape:
    """Remembers how every tensor was made that is made of data and constants alone."""

    def __init__(self, weights: Sequence[torch.Tensor]) -> None:
        self._weights = {id(each) for each in weights}
        self._made: dict[int, tuple[torch.Tensor, Path | tuple[Step, int]]] = {}
        self.numbers: list[tuple[torch.Tensor, str]] = []
        """Numbers that must be as large for each sample."""

    def add_data(self, tensor: torch.Tensor, path: Path) -> None:
        """Add a tensor of the data, by its path in (inputs, targets)."""
        self._made[id(tensor)] = (tensor, path)

    def forget(self, tensor: torch.Tensor) -> None:
        """Remove a tensor that something was written to."""
        self._made.pop(id(tensor), None)

    def note(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Add the result of an operator that writes to nothing."""
        given = list(tensors_in([args, list(kwargs.values())]))
        if _RANDOM in function.tags or not given or not all(map(self._is_known, given)):
            return
        if not any(id(tensor) in self._made for tensor in given):
            return
        step = Step(function, tuple(args), dict(kwargs))
        for index, output in enumerate(result if isinstance(result, (tuple, list)) else [result]):
            if isinstance(output, torch.Tensor):
                self._made[id(output)] = (output, (step, index))

    def _is_known(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._made or self.is_constant(tensor)

    def is_constant(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is small and never changes."""
        is_own = id(tensor) in self._weights or isinstance(tensor, FakeTensor) or tensor.requires_grad
        return not is_own and tensor.numel() <= _MOST_CONSTANT and tensor.layout is torch.strided

    def proportional(self, value: Any, why: str) -> bool:
        """Note that a number must be as large for each sample, if it is made of data alone.

        Args:
            value: that something is divided by.
            why: what is done with it, for people.
        """
        if not isinstance(value, torch.Tensor) or id(value) not in self._made or value.ndim:
            return False
        self.numbers.append((value, why))
        return True

    def origin(self, tensor: torch.Tensor) -> Path | tuple[Step, int] | None:
        """Return the path in the data, or the operator and the number of its result; None: it is not of data alone."""
        found = self._made.get(id(tensor))
        return found[1] if found else None
