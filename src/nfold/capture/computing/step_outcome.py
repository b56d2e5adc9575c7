"""Compares two ways of computing one training step: loss, gradients (absent or not, and value) and buffers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import torch
from torch import nn

PIECE = 1 << 22
"""Elements of one piece."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOutcome:
    """The loss, gradients and buffers after one forward and backward."""

    loss: torch.Tensor
    gradients: dict[str, torch.Tensor | None]
    buffers: dict[str, torch.Tensor]


def outcome(loss: torch.Tensor, model: nn.Module) -> StepOutcome:
    """Take a step's results; the next one makes gradients anew."""
    gradients = {
        name: None if parameter.grad is None else parameter.grad.detach()
        for name, parameter in model.named_parameters()
    }
    model.zero_grad(set_to_none=True)
    buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    return StepOutcome(loss=loss.detach().clone(), gradients=gradients, buffers=buffers)


def difference(expected: StepOutcome, found: StepOutcome, precision: float = 0.0) -> str:
    """Say how an outcome differs from the expected one; empty if only by rounding.

    Args:
        expected: from the user's own module.
        found: to compare.
        precision: relative rounding of the coarsest type used inside, if coarser than the tensors'.
    """
    if not close(expected.loss, found.loss, precision):
        return f"the loss is {found.loss.item():.9g} instead of {expected.loss.item():.9g}"
    for name, gradient in expected.gradients.items():
        other = found.gradients[name]
        if (gradient is None) != (other is None):
            return f"the gradient of {name} is {'missing' if other is None else 'there, and should not be'}"
    unlike = {
        name: gradient
        for name, gradient in expected.gradients.items()
        if gradient is not None and not _equal(gradient, found.gradients[name])
    }
    if unlike:
        largest = max(_largest(gradient) for gradient in expected.gradients.values() if gradient is not None)
    for name, gradient in unlike.items():
        # Rounding of the largest gradient shows up in those that are nearly zero, as of a bias before batch norm.
        if not close(gradient, found.gradients[name], precision, floor=0.1 * largest):
            return f"the gradient of {name} differs"
    for name, buffer in expected.buffers.items():
        if not close(buffer, found.buffers[name], precision):
            return f"the buffer {name} differs"
    return ""


def _equal(expected: torch.Tensor, found: torch.Tensor | None) -> bool:
    """Tell whether two tensors are equal to the last bit: most are, and it is quick to find out of dense ones."""
    if found is None or expected.layout is not torch.strided or found.layout is not torch.strided:
        return False
    return expected.dtype == found.dtype and torch.equal(expected, found)


def close(expected: torch.Tensor, found: torch.Tensor | None, precision: float = 0.0, floor: float = 0.0) -> bool:
    """Tell whether two tensors are equal up to rounding.

    Args:
        expected: gives the scale.
        found: None is never close.
        precision: relative rounding, if coarser than that of the tensors' own type.
        floor: added to the scale.
    """
    if found is None or expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if _equal(expected, found):
        return True
    expected, found = dense(expected), dense(found)
    if not (expected.is_floating_point() or expected.is_complex()):
        return torch.equal(expected, found)
    tolerance = max(torch.finfo(expected.dtype).eps, precision) ** 0.6
    scale = _largest(expected) + floor
    # Where both are infinite or not a number they agree.
    return all(
        bool(torch.isclose(one, other, rtol=0.0, atol=tolerance * scale, equal_nan=True).all())
        for one, other in zip(pieces(found), pieces(expected), strict=True)
    )


def _largest(tensor: torch.Tensor) -> float:
    return max(map(_largest_of_piece, pieces(dense(tensor))))


def _largest_of_piece(piece: torch.Tensor) -> float:
    finite = piece[torch.isfinite(piece)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a sparse tensor as a dense one, and any other one unchanged."""
    return tensor if tensor.layout in (torch.strided, torch.jagged) else tensor.to_dense()


def pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return a tensor's elements, many at once; one piece without any if it has none.

    To look at a large tensor piece by piece takes no memory of its size.
    """
    return tensor.reshape(-1).tensor_split(max(1, ceil(tensor.numel() / PIECE)))
