"""Goes on looking whether the loss is a mean over samples while a program trains: a few batches cannot show it all.

Targets that a loss leaves out (ignore_index, masks), or weighs by their class, may come late in the data. So chunks are
taken apart again: the 1st, 2nd, 4th, 8th .. that a rank computes, and those with targets beyond all that it has seen.
"""

import math
from dataclasses import replace
from typing import Any

import torch

from nfold.capture.compare import close
from nfold.capture.divisible import not_a_mean, split
from nfold.capture.precision import PrecisionWatch
from nfold.capture.program_graph import Loss
from nfold.capture.random import LOCK, RandomState
from nfold.capture.tree import map_tensors, paths_of
from nfold.errors import ProgramError
from nfold.program import Program

_PRECISION = 1e-6
"""Relative rounding to allow for: parts are added in another order."""


def with_checked_loss(program: Program, num_chunks: int) -> Program:
    """Return a program whose loss is checked if that decides what is learnt."""
    return replace(program, loss=CheckedLoss(program.loss)) if num_chunks > 1 else program


class CheckedLoss:
    """The user's loss, for a program whose batches are cut into chunks."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._num_calls = 0
        self._seen: dict[tuple[Any, ...], tuple[float, float]] = {}
        """Least and greatest target, by its place in the structure of targets."""
        self.__name__ = getattr(loss, "__name__", type(loss).__name__)

    def __call__(self, outputs: Any, targets: Any) -> torch.Tensor:
        """Compute the loss.

        Raises:
            ProgramError: it is no mean over these samples.
        """
        self._num_calls += 1
        is_new = self._note(targets)
        if is_new or self._num_calls & (self._num_calls - 1) == 0:
            self._check(map_tensors(torch.detach, outputs), targets)
        return self._loss(outputs, targets)

    def _note(self, targets: Any) -> bool:
        """Tell whether targets lie beyond those seen: whole numbers smaller or greater, or the first that are none."""
        found = False
        for path, tensor in paths_of(targets):
            if tensor.dtype == torch.bool or tensor.is_complex() or not tensor.numel():
                continue
            low, high = (float(each) for each in tensor.aminmax())
            if tensor.is_floating_point():
                low = high = float(math.isnan(low))
            before = self._seen.get(path, (math.inf, -math.inf))
            self._seen[path] = min(low, before[0]), max(high, before[1])
            found = found or self._seen[path] != before
        return found

    def _check(self, outputs: Any, targets: Any) -> None:
        size = _num_samples(outputs, targets)
        if size < 2:
            return
        sizes = (size - size // 3, size // 3) if size > 2 else (1, 1)
        # Ranks may be threads: what this draws must not be missing elsewhere.
        with LOCK, torch.no_grad(), PrecisionWatch() as watch:
            before = RandomState()
            try:
                (whole,) = self._computed(outputs, targets, (size,))
                parts = self._computed(outputs, targets, sizes)
            except Exception:
                return  # it needs more than outputs, such as their gradients: capture tried it with those
            finally:
                drew = before.torch_moved() or before.others_moved()
                before.restore()
        mean = sum((part * (count / size) for part, count in zip(parts, sizes, strict=True)), torch.zeros_like(whole))
        if not drew and not close(whole, mean, max(_PRECISION, watch.coarsest)):
            raise ProgramError(f"{not_a_mean(whole, mean, size)}. Use -n 1, --chunks 1.")

    def _computed(self, outputs: Any, targets: Any, sizes: tuple[int, ...]) -> list[torch.Tensor]:
        pairs = zip(split(outputs, sizes), split(targets, sizes), strict=True)
        return [self._loss(output, target) for output, target in pairs]


def _num_samples(outputs: Any, targets: Any) -> int:
    """Return the samples of a chunk; 0 unless each tensor shows beyond doubt that it has a row for each."""
    shapes = [tensor.shape for value in (outputs, targets) for _, tensor in paths_of(value)]
    if not shapes or not all(len(shape) for shape in shapes):
        return 0
    size = shapes[0][0]
    return size if all(shape[0] == size and list(shape).count(size) == 1 for shape in shapes) else 0
