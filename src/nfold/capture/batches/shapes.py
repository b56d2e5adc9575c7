"""Whether a batch has the shapes with which a model was cut: those that did not change then are fixed in it."""

import itertools
from dataclasses import dataclass
from typing import Any

import torch

from nfold.capture.batches.example import SIZES, THIRD_SIZE, Example
from nfold.capture.batches.sizes import Affine, fit
from nfold.capture.batches.tree import dtype_name, paths_of, shapes_text
from nfold.errors import ProgramError


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of a batch's tensors, those of the inputs first, as a function of the number of samples."""

    sizes: dict[tuple[Any, ...], tuple[Affine | None, ...]]
    """Of each dimension, by the keys that lead to a tensor; what follows no rule is left out: nothing relies on it."""

    def check(self, batch: tuple[Any, Any], size: int, chunk: int) -> None:
        """Refuse a batch of other shapes.

        Raises:
            ProgramError: a tensor has another shape; the message names it and both shapes.
        """
        for path, tensor in paths_of(batch):
            lines = self.sizes.get(path)
            usual = None if lines is None else _at(lines, size, tensor.shape)
            if usual is not None and usual != list(tensor.shape):
                raise ProgramError(
                    f"{'targets' if path[0] else 'inputs'} of chunk {chunk} hold {shapes_text(tensor)}, and {size} "
                    f"samples had {dtype_name(tensor.dtype)}{usual} when the model was cut, which counts for all "
                    "batches. Give all samples one length: pad them in train_data() or in Program(collate=...)."
                )


def _at(lines: tuple[Affine | None, ...], size: int, found: torch.Size) -> list[int]:
    """Return the shape for so many samples; where a dimension follows no rule, as it was found."""
    pairs = itertools.zip_longest(lines, found[: len(lines)], fillvalue=0)
    return [line.at(size) if isinstance(line, Affine) else length for line, length in pairs]


def batch_shapes(example: Example) -> Shapes:
    """Return the shapes that batches have for any number of samples. Reads three small batches."""
    batches = [(size, dict(paths_of(example.batch(size)))) for size in (*SIZES, THIRD_SIZE)]
    fitted = {path: _lines([(size, found.get(path)) for size, found in batches]) for path in batches[0][1]}
    return Shapes({path: lines for path, lines in fitted.items() if lines is not None})


def _lines(observed: list[tuple[int, torch.Tensor | None]]) -> tuple[Affine | None, ...] | None:
    """Return the rules of a tensor's dimensions; None where it is not in every batch, or has no sizes."""
    shapes = [(size, each.shape) for size, each in observed if each is not None and each.layout is not torch.jagged]
    ranks = {len(shape) for _, shape in shapes}
    if len(shapes) < len(observed) or len(ranks) > 1:
        return None
    return tuple(fit([(size, shape[dim]) for size, shape in shapes]) for dim in range(ranks.pop()))
