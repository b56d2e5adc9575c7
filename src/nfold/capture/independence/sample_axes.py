"""Finds where in the tensors between operators the samples lie, so that a part of a cut model can be tried on some.

How a tensor's size grows with the batch does not say it: of 2 x samples rows the samples may come one after another,
or all of them twice. So a batch is computed whole and in parts: where the samples lie is where the parts' tensors,
joined, are the whole batch's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from nfold.capture.batches.example import Example
from nfold.capture.batches.sizes import Spec
from nfold.capture.computing.random import CellRandom
from nfold.capture.computing.steady_draws import SteadyDraws
from nfold.capture.computing.step_outcome import close
from nfold.capture.cutting.captured import Captured
from nfold.capture.independence.batch_cut import cut_example
from nfold.capture.independence.divisible import quiet

_WHICH = 2
"""Other samples than those by which the program was captured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleAxis:
    """The dimensions of a tensor in which its samples lie."""

    dimension: int | None
    """That counts them; None: the tensor is the same for all samples."""
    spec: Spec | None = None
    """Of a tensor that messages bring."""
    count: int = 1
    """Rows of that dimension for each sample."""
    is_outer: bool = True
    """Whether a sample's rows lie side by side; else the first rows of all samples do."""

    def rows(self, value: torch.Tensor) -> torch.Tensor:
        """Return a value with the samples as its first dimension. Not where it is the same for all of them."""
        assert self.dimension is not None, "it belongs to no sample"
        moved = value.movedim(self.dimension, 0)
        if self.count == 1:
            return moved
        size, rest = moved.shape[0] // self.count, moved.shape[1:]
        if self.is_outer:
            return moved.reshape(size, self.count, *rest)
        return moved.reshape(self.count, size, *rest).transpose(0, 1)

    def take(self, value: torch.Tensor, samples: Sequence[int]) -> torch.Tensor:
        """Return a copy of some samples of a value, in the memory order in which a message would bring them."""
        if self.dimension is None:
            return value.clone()
        rows = self.rows(value).index_select(0, torch.tensor(samples, device=value.device))
        if self.count > 1:
            rows = (rows if self.is_outer else rows.transpose(0, 1)).flatten(0, 1)
        taken = rows.movedim(0, self.dimension)
        return taken if self.spec is None else self.spec.unpack(self.spec.pack(taken))

    def fits(self, whole: torch.Tensor, parts: Sequence[torch.Tensor], precision: float = 0.0) -> bool:
        """Whether the samples of the parts equal those of the whole, up to rounding."""
        if self.dimension is None:
            return all(close(whole, part, precision) for part in parts)
        rows = [self.rows(each) for each in (whole, *parts)]
        alike = all(each.shape[1:] == rows[0].shape[1:] for each in rows)
        return alike and close(rows[0], torch.cat(rows[1:]), precision)


def find_sample_axes(
    captured: Captured, fresh: Callable[[], nn.Module], example: Example, tensors: Sequence[str]
) -> dict[str, SampleAxis]:
    """Compute a few samples together and apart, and return where they lie; four forward passes.

    Args:
        captured: the program; of operators in parts the rows are cut out of the model's weights.
        fresh: makes copies of its model, all weights included.
        example: where batches come from.
        tensors: names of tensors between operators.

    Returns:
        No axis for a tensor in which the samples lie nowhere, or in more than one way.
    """
    model = fresh()
    quiet(model)
    copied = Captured(captured.graph, captured.layout, model)
    operators = [operator.name for operator in captured.graph.operators]
    run = copied.segment(operators, ("input", "target"), tensors, CellRandom(0))
    cut = cut_example(example, _WHICH)
    with SteadyDraws():
        whole, *parts = ([each.detach() for each in run(*batch)] for batch in (cut.whole, *cut.parts))
    found = {}
    for name, value, *pieces in zip(tensors, whole, *parts, strict=True):
        axes = [axis for axis in _candidates(captured.spec(name)) if axis.fits(value, pieces)]
        if len(axes) == 1:
            found[name] = axes[0]
    return found


def _candidates(spec: Spec) -> Iterator[SampleAxis]:
    growing = [dimension for dimension, line in enumerate(spec.shape) if line.slope]
    if not growing:
        yield SampleAxis(spec=spec, dimension=None)
        return
    (dimension,) = growing
    line = spec.shape[dimension]
    if line.fixed == 0:
        for is_outer in (True, False)[: min(line.slope, 2)]:
            yield SampleAxis(spec=spec, dimension=dimension, count=line.slope, is_outer=is_outer)
