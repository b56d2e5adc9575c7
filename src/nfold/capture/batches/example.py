"""A few batches of the user's data, on which a program is tried, captured and checked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from nfold.capture.batches.tree import map_tensors

SIZES = (3, 2)
"""Two small batches: different, so that sizes can be told from constants, and enough for batch norm."""
THIRD_SIZE, GATE_SIZE = 5, 7
"""What grows with the batch in another way than a + b x samples (n // 2, n * n, max(n, 4)) may lie on a line for two
sizes that are neighbours, and on none for three; what is built from three sizes is checked at a fourth."""

LONGEST = -1
"""As `which`: where batches are padded, the longest sample that was seen, again and again."""
SECOND_LONGEST = -2
"""The same of the longest of those that become other shapes than it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """Gives example batches of any number of samples."""

    make: Callable[[int, int], tuple[Any, Any]]
    """(size, which) -> (input, target); the same arguments give equal values, another `which` other samples."""
    make_parts: Callable[[tuple[int, ...], int], tuple[Any, list[Any]]] | None = None
    """(sizes, which) -> a batch, and the same samples joined part by part; None: rows of the batch are its parts."""
    why_unlike_parts: Callable[[tuple[int, ...], int], str] | None = None
    """(sizes, which) -> why that batch is not what its parts are, in the user's words; empty: it is."""
    is_joined_by_program: bool = False
    """Whether the program joins items itself, and so may join samples by what the others are."""
    varying: str = ""
    """How batches differ in more than the number of samples, as padded ones do; empty: they do not."""

    largest: int = 0
    """Samples of a batch that is trained on; 0: not known."""
    last: Callable[[], int] = lambda: 0
    """Returns the samples of the shorter batch that ends an epoch; 0: there is none, or it is not known."""
    only: int = 0
    """Samples of the only batches on which the program computes, whatever size is asked for; 0: it computes on any."""

    def batch(self, size: int, which: int = 0) -> tuple[Any, Any]:
        """Return a new batch of inputs and targets: a program that changes its input in place spoils only its own."""
        inputs, target = self.make(self.size_of(size), which)
        return map_tensors(_copy, inputs), map_tensors(_copy, target)

    def size_of(self, size: int) -> int:
        """Return the number of samples of the batch that `batch(size)` gives."""
        return self.only or size

    def parts(self, sizes: tuple[int, ...], which: int) -> tuple[Any, list[Any]] | None:
        """Return a batch, and the same samples joined part by part as chunks are; None: rows of the batch are those."""
        return self.make_parts(sizes, which) if self.make_parts is not None else None


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()
