"""Notes which weights a forward pass writes to: in place, through `.data`, which counts no version, or as a whole.

Where what is written equals what was there, as an average of the weights does at the first, nothing else shows it.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from nfold.capture.batches.tree import tensors_of

Weight = tuple[str, str]
"""(module path, attribute)."""


class WeightWrites(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches writes to weights in what is computed under it; a write that changes no value counts too."""

    def __init__(self, model: nn.Module, beside: Mapping[str, Sequence[torch.Tensor]] | None = None) -> None:
        """Begin to watch a model, and other tensors by the names of their places."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._model, self._beside = model, beside or {}
        self._before = {weight: storage_of(tensor) for weight, tensor in _weights(model) if storage_of(tensor)}
        self._kept = [tensor.untyped_storage() for _, tensor in _weights(model) if storage_of(tensor)]
        """So that no other memory gets the number of one that is replaced."""
        self._written: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute, and note whose memory is written to."""
        kwargs = kwargs or {}
        for position, name in written_arguments(func):
            given = args[position] if position < len(args) else kwargs.get(name)
            self._written.update(storage_of(tensor) for tensor in tensors_of(given))
        return func(*args, **kwargs)

    def weights(self) -> list[Weight]:
        """Return the weights that were written to, or whose memory is another one now, under all of their names."""
        now = {weight: storage_of(tensor) for weight, tensor in _weights(self._model)}
        return [
            weight for weight, before in self._before.items() if before in self._written or now.get(weight) != before
        ]

    def places(self) -> list[str]:
        """Return the names of the places beside the model that were written to, in place."""
        return [name for name, held in self._beside.items() if any(storage_of(each) in self._written for each in held)]


def _weights(model: nn.Module) -> Iterator[tuple[Weight, torch.Tensor]]:
    for path, module in model.named_modules(remove_duplicate=False):
        for name, parameter in module.named_parameters(recurse=False):
            yield (path, name), parameter


def storage_of(tensor: torch.Tensor) -> int:
    """Identify the memory of a tensor, while it lives; 0 if it has none of its own."""
    with contextlib.suppress(RuntimeError):  # NotImplementedError is one
        return int(tensor.untyped_storage()._cdata)
    return 0


@functools.cache
def written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Return position and name of the arguments that an operator of torch says it writes to."""
    arguments = enumerate(func._schema.arguments)
    return tuple((index, each.name) for index, each in arguments if each.alias_info and each.alias_info.is_write)
