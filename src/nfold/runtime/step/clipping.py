"""Finds the norm of all gradients together with the other ranks, and the factor that brings it below the limit.

The factor is that of `torch.nn.utils.clip_grad_norm_`. Tasks and messages are those of
`planning/reductions/norm_messages.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

import torch
from torch import nn

from nfold.core.placement import Reduction
from nfold.core.tasks import Elements
from nfold.planning.reductions.norm_messages import FACTOR, squares, width_of
from nfold.runtime.parameters.buffers import Buffers
from nfold.runtime.parameters.fixed_point import digits_of, from_digits
from nfold.runtime.parameters.fixed_point import squares as exact_squares

_EPSILON = 1e-6
"""As torch adds to a norm before it divides by it."""


class Clipping:
    """One rank's part of clipping gradients by their 2-norm over all parameters."""

    def __init__(
        self,
        limit: float,
        rank: int,
        world_size: int,
        reductions: tuple[Reduction, ...],
        buffers: Buffers,
        parameters: Mapping[str, nn.Parameter],
    ) -> None:
        self._limit, self._rank, self._buffers = limit, rank, buffers
        self._fraction_bits = next((each.fraction_bits for each in reductions), None)
        self._width = width_of(reductions)
        self._squares = buffers.allocate(squares(0, world_size, self._width))
        self._factor = buffers.allocate(FACTOR)
        self._local = {
            reduction.name: [parameters[name] for name in reduction.parameters]
            for reduction in reductions
            if reduction.route == "local" and rank in reduction.members
        }
        held = {name for reduction in reductions for name in reduction.parameters}
        # They have a gradient only where one rank runs a model that cannot be looked into.
        self._others = [parameter for name, parameter in parameters.items() if name not in held]

    def begin(self) -> None:
        """Forget the squares of the step before."""
        self._squares.zero_()

    def count(self, gradients: Elements) -> None:
        """Add the squares of some summed gradients to this rank's sum."""
        if self._fraction_bits is None:
            self._squares[self._rank] += _squares(self._tensors(gradients))
            return
        own = self._squares[self._rank * self._width : (self._rank + 1) * self._width]
        found = exact_squares(self._buffers.flat(replace(gradients, kind="addend")))
        own.copy_(torch.tensor(digits_of(from_digits(own.tolist()) + found), dtype=own.dtype))

    def find_factor(self) -> None:
        """Find the factor from the squares of all ranks."""
        others = _squares([each.grad for each in self._others if each.grad is not None])
        norm = (self._sum() + others) ** 0.5
        self._factor.fill_(clip_factor(norm, self._limit))

    def _sum(self) -> float:
        """The squares of all ranks; of whole numbers exact, whoever has summed which."""
        if self._fraction_bits is None:
            return float(self._squares.sum())
        total = sum(from_digits(own.tolist()) for own in self._squares.view(-1, self._width))
        return float(Fraction(total) / Fraction(4) ** self._fraction_bits)

    @property
    def factor(self) -> float:
        """What gradients are multiplied by in this step."""
        return float(self._factor)

    def _tensors(self, gradients: Elements) -> Iterable[torch.Tensor]:
        if gradients.name in self._local:
            return [each.grad for each in self._local[gradients.name] if each.grad is not None]
        return [self._buffers.flat(gradients)]


def clip_factor(norm: float, limit: float) -> float:
    """Return limit / norm, at most 1, as `torch.nn.utils.clip_grad_norm_`; NaN if the norm is NaN."""
    factor = limit / (norm + _EPSILON)
    return 1.0 if factor > 1.0 else factor


def _squares(gradients: Iterable[torch.Tensor]) -> float:
    return sum(_norm(gradient) ** 2 for gradient in gradients)


def _norm(gradient: torch.Tensor) -> float:
    """Return a 2-norm, in at least single precision."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    wide = torch.float32 if values.dtype in (torch.float16, torch.bfloat16) else None
    return float(torch.linalg.vector_norm(values, dtype=wide))
