"""Finds the coarsest type in which a program computes, autocast inside its modules included, and avoids it."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nfold.capture.batches.tree import tensors_of

SINGLE = torch.finfo(torch.float32).eps
"""Relative rounding of single precision."""


def finer(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of half precision in single precision, and any other one unchanged."""
    is_coarse = tensor.is_floating_point() and torch.finfo(tensor.dtype).eps > SINGLE
    return tensor.float() if is_coarse else tensor


class PrecisionWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the types in which everything under it is computed.

    Attributes:
        coarsest: relative rounding of the coarsest type so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.coarsest = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute, and look at the types of the results."""
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_of(result):
            if tensor.is_floating_point() or tensor.is_complex():
                self.coarsest = max(self.coarsest, torch.finfo(tensor.dtype).eps)
        return result
