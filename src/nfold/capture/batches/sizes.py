"""How sizes grow with the batch: a dimension of a tensor that may cross a cut is a + b x samples, the others fixed."""

from dataclasses import dataclass
from typing import Any

import torch

from nfold.capture.batches.tree import dtype_name, shapes_text
from nfold.errors import ProgramError


@dataclass(frozen=True, slots=True)
class Affine:
    """The whole number fixed + slope x samples."""

    fixed: int
    slope: int

    def at(self, size: int) -> int:
        """Return the number for a batch of `size` samples."""
        return self.fixed + self.slope * size


@dataclass(frozen=True, slots=True)
class Spec:
    """The shape and type of a tensor as a function of the number of samples."""

    shape: tuple[Affine, ...]
    dtype: torch.dtype
    order: tuple[int, ...]
    """Dimensions as they lie in memory, outermost first. A message keeps it: where the program takes a view of a
    transposed tensor, a copy that lies otherwise has no such view."""

    def at(self, size: int) -> tuple[int, ...]:
        """Return the shape for a batch of `size` samples."""
        return tuple(line.at(size) for line in self.shape)

    def check(self, value: torch.Tensor, size: int) -> None:
        """Refuse a value that a receiver would take for another one.

        Raises:
            ProgramError: it has another shape or type than it should have for `size` samples.
        """
        if tuple(value.shape) != self.at(size) or value.dtype != self.dtype:
            raise ProgramError(
                f"a tensor between two operators is {shapes_text(value)} for a chunk of {size} samples, and in all "
                f"trials of the program it was {dtype_name(self.dtype)}{list(self.at(size))}: values of a tensor "
                "decide its shape, which no other rank could know. Mask it (torch.where) instead of selecting from it, "
                "so that it has one shape, or do not cut the model"
            )

    def pack(self, value: torch.Tensor) -> torch.Tensor:
        """Return the elements of a value in the order of its memory, without gaps, as a flat tensor."""
        return value.permute(self.order).contiguous()

    def room(self, size: int) -> torch.Tensor:
        """Return uninitialised memory for a packed value of `size` samples."""
        shape = self.at(size)
        return torch.empty([shape[dimension] for dimension in self.order], dtype=self.dtype)

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """Return a packed value in its shape."""
        return packed.permute(sorted(range(len(self.order)), key=self.order.__getitem__))

    def bytes(self) -> tuple[float, int]:
        """Return the bytes per sample, and the bytes that do not grow with the samples."""
        at = [self.dtype.itemsize * self._elements(size) for size in (0, 1)]
        return float(at[1] - at[0]), at[0]

    def _elements(self, size: int) -> int:
        elements = 1
        for dimension in self.shape:
            elements *= dimension.at(size)
        return elements


def fit(observed: list[tuple[int, int]]) -> Affine | None:
    """Fit (samples, number) pairs; None if they lie on no line, or on one with a fraction in it."""
    (size, number), *rest = observed
    slope = 0
    for other_size, other_number in rest:
        if other_size != size:
            slope, remainder = divmod(other_number - number, other_size - size)
            if remainder:
                return None
    line = Affine(number - slope * size, slope)
    return line if all(line.at(size) == number for size, number in observed) else None


def fit_tensor(observed: list[tuple[int, Any]]) -> Spec | None:
    """Fit a value seen at several batch sizes; None unless it is a plain dense tensor that may cross a cut.

    One that grows in two dimensions may not: its bytes are no multiple of the samples.
    """
    tensors = [tensor for _, tensor in observed if type(tensor) in (torch.Tensor, torch.nn.Parameter)]
    if len(tensors) != len(observed) or any(tensor.layout != torch.strided for tensor in tensors):
        return None
    if len({(tensor.ndim, tensor.dtype) for tensor in tensors}) > 1:
        return None
    lines = [
        fit([(size, tensor.shape[dimension]) for size, tensor in observed]) for dimension in range(tensors[0].ndim)
    ]
    known = tuple(line for line in lines if line is not None)
    if len(known) < len(lines) or sum(line.slope != 0 for line in known) > 1:
        return None
    return Spec(known, tensors[0].dtype, memory_order(tensors[0]))


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the dimensions of a tensor in the order of its memory, outermost first; unchanged if elements overlap."""
    strides = tensor.stride()
    if any(stride == 0 and size > 1 for stride, size in zip(strides, tensor.shape, strict=True)):
        return tuple(range(tensor.ndim))
    return tuple(sorted(range(tensor.ndim), key=lambda dimension: -strides[dimension]))


def fit_number(observed: list[tuple[int, Any]]) -> Any:
    """Fit a size, or nested sizes, seen at several batches; None if they follow no rule.

    Returns:
        An `Affine` for an int, a tuple of them for a shape, the value itself for what never changes.
    """
    values = [value for _, value in observed]
    if all(type(value) is int for value in values):
        return fit(observed)
    if all(isinstance(value, tuple) for value in values) and len({len(value) for value in values}) == 1:
        parts = [fit_number([(size, value[index]) for size, value in observed]) for index in range(len(values[0]))]
        return None if None in parts else tuple(parts)
    if all(isinstance(value, (float, bool)) for value in values) and len(set(values)) == 1:
        return values[0]
    return None
