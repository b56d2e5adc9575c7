"""Bytes: resident in the process, kept by an optimizer, kept from forward to backward."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nfold.capture.tree import tensors_of

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the memory that the process holds now."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        import resource

        # Where /proc is missing only the most ever held is known; macOS counts bytes, others kilobytes.
        unit = 1 if os.uname().sysname == "Darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of an optimizer's state. It exists after the first step."""
    return sum(tensor.nbytes for state in optimizer.state.values() for tensor in tensors_of(dict(state)))


def saved_bytes(compute: Callable[[], Any], model: nn.Module) -> int:
    """Return the bytes that a computation keeps for its backward, parameters and buffers not counted."""
    own = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = compute()
    del result
    return sum(kept.values())
