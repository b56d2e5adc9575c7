"""Bytes: resident in the process, kept by an optimizer, kept from forward to backward."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from nfold.capture.batches.tree import num_bytes, strided_parts, tensors_of
from nfold.capture.computing.backward_history import backward_nodes
from nfold.capture.side_effects.held_values import held_by

T = TypeVar("T")

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the bytes that are resident in the process now; where /proc is missing, the most that ever were."""
    return _held_bytes()[0]


def own_bytes() -> int:
    """Return the bytes resident now without those of files, as libraries are: as many as a fork begins with."""
    resident, of_files = _held_bytes()
    return resident - of_files


def _held_bytes() -> tuple[int, int]:
    """Return what the process holds, and what of that is of files or shared memory."""
    try:
        resident, of_files = _STATM.read_text(encoding="utf-8").split()[1:3]
        page = os.sysconf("SC_PAGE_SIZE")
        return int(resident) * page, int(of_files) * page
    except (OSError, ValueError):
        import resource

        # Where /proc is missing only the most ever held is known; macOS counts bytes, others kilobytes.
        unit = 1 if os.uname().sysname == "Darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, 0


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of an optimizer's state, wherever it keeps it: in optimizers within, too.

    It exists after the first step.
    """
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    found = {id(each): each for each in held_by(optimizer, parameters).values() if isinstance(each, torch.Tensor)}
    return num_bytes(list(found.values()))


class SavedTensorCounter:
    """Counts the storages that computations keep for their backward, each once, parameters and buffers not at all.

    Keep what they return until the last one is done: memory that is freed is used again, and looks like the same.
    """

    def __init__(self, model: nn.Module) -> None:
        # Not by where the bytes are: asking for that copies weights that share them until somebody writes.
        own = (part for tensor in [*model.parameters(), *model.buffers()] for part in strided_parts(tensor.detach()))
        self._own = {part.untyped_storage()._cdata for part in own}
        self._kept: dict[int, int] = {}

    def count(self, compute: Callable[[], T]) -> tuple[T, int]:
        """Return the result of a computation, and the bytes that it keeps and none before it kept.

        It is computed again where it allows no hooks, as torch.func.jacrev does: then counts what its history holds,
        without what only its own backward can unpack.
        """
        before = sum(self._kept.values())
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor):
                result = compute()
        except RuntimeError:  # any other is raised again
            result = compute()
            for tensor in _held_by_history(result):
                self._keep(tensor)
        return result, sum(self._kept.values()) - before

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self._keep(tensor)
        # A result that is kept with its own history is a circle that no collector sees, with the model in it.
        return tensor.detach()

    def _keep(self, tensor: torch.Tensor) -> None:
        for part in strided_parts(tensor.detach()):
            storage = part.untyped_storage()
            if storage._cdata not in self._own:
                self._kept[storage._cdata] = storage.nbytes()


def _held_by_history(value: Any) -> Iterator[torch.Tensor]:
    """Yield what the backward of a value holds, as far as its nodes show it."""
    for node in backward_nodes(value):
        names = [name for name in dir(node) if name.startswith("_saved_") or name == "saved_tensors"]
        yield from tensors_of([getattr(node, name, None) for name in names])
