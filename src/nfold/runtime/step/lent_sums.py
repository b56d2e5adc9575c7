"""What ranks give to a newcomer that plays their steps too: all sums of a step, each from one of them.

Several ranks sum gradients in buckets. One that trains alone puts its gradients into those of the plan that follows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import nn

from nfold.capture.computing.batch_norm import set_running_statistics
from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.core.schedule import StatisticsGroup
from nfold.core.tasks import Elements
from nfold.errors import RunError
from nfold.planning.reductions.ring_and_server_messages import summed_first
from nfold.planning.scheduling.shadow_part import are_all_sums, sums_of
from nfold.runtime.parameters.buffers import Buffers, Piece, pieces

TellSum = Callable[[Elements], None]
"""Called with elements of a bucket once they are summed."""


def lent_sums(
    rank: int,
    reductions: Sequence[Reduction],
    graph: ModelGraph,
    groups: Sequence[StatisticsGroup],
    chunks: int,
    *,
    is_alone: bool,
) -> tuple[Elements, ...]:
    """Return which sums of a step come from a rank; all ranks together give all.

    Args:
        rank: of those that train.
        reductions: by which they sum; where one trains alone, those that follow.
        graph: of the program.
        groups: of batch statistics.
        chunks: of a step.
        is_alone: whether one rank trains alone.
    """
    updates_own = is_alone and all(each.fraction_bits is None for each in reductions)
    rows = _running(graph) if updates_own else ()
    return (*sums_of(rank, reductions, () if rows else groups, chunks, clips=graph.clips_gradients), *rows)


def are_all_lent(
    sums: Sequence[Elements],
    reductions: Sequence[Reduction],
    graph: ModelGraph,
    groups: Sequence[StatisticsGroup],
    chunks: int,
) -> bool:
    """Return whether a shadow is given all that changes the training's state in a step, by those who sum or by one."""
    rows = [each for each in sums if each.kind == "running"]
    summed = [each for each in sums if each.kind != "running"]
    are_all = are_all_sums(summed, reductions, () if rows else groups, chunks, clips=graph.clips_gradients)
    return are_all and (not rows or tuple(rows) == _running(graph))


def _running(graph: ModelGraph) -> tuple[Elements, ...]:
    """Of one rank alone, whose batch norms update theirs as they run."""
    return tuple(Elements("running", each.module, 0, 2 * each.num_channels + 1) for each in graph.statistics)


def flat_gradients(bucket: Reduction, parameters: Mapping[str, nn.Parameter]) -> torch.Tensor:
    """Return the gradients of a bucket that one rank alone updates, one after the other.

    Raises:
        RunError: a weight has none, or a sparse one: a shadow has a number for each element.
    """
    found = []
    for name in bucket.parameters:
        gradient = parameters[name].grad
        if gradient is None or gradient.layout is not torch.strided:
            raise RunError(f"{name} has {'no' if gradient is None else 'a sparse'} gradient in a step")
        found.append(gradient.detach().reshape(-1))
    return torch.cat(found)


def take_in(sums: Iterable[tuple[Elements, torch.Tensor]], model: nn.Module, buffers: Buffers) -> bool:
    """Put what a shadow was given of a step where it is played from; return whether batch norms have theirs already."""
    are_folded = False
    for elements, values in sums:
        if elements.kind == "running":
            set_running_statistics(model.get_submodule(elements.name), values)
            are_folded = True
        else:
            buffers.flat(elements).copy_(values)
    return are_folded


class SumsAlone:
    """What the optimizer is given next, from the end of a step's last backward to its update."""

    def __init__(
        self,
        rank: int,
        reductions: Sequence[Reduction],
        parameters: Mapping[str, nn.Parameter],
        gradient: Callable[[str, int, int], torch.Tensor | None],
    ) -> None:
        """Args:
        rank: that computes all gradients.
        reductions: into which they are put, each a ring of this rank.
        parameters: by the names of the graph.
        gradient: returns elements of what a parameter is updated by; None: it has none, or a sparse one.
        """
        self._reductions = {each.name: each for each in reductions}
        self._pieces = [piece for each in reductions for piece in summed_first(each, rank)]
        self._gradient, self._sizes = gradient, {name: each.numel() for name, each in parameters.items()}
        summed = {name for each in reductions for name in each.parameters}
        self._others = {name: each for name, each in parameters.items() if name not in summed}

    def tell(self, summed: TellSum, committed: Callable[[int], None], step: int) -> None:
        """Tell of all elements and then of the step, before it changes the training's state."""
        for each in self._pieces:
            summed(each)
        committed(step)

    def values(self, elements: Elements) -> torch.Tensor:
        """Return elements of a bucket.

        Raises:
            RunError: several ranks would not update the same weights in this step.
        """
        if more := [name for name, each in self._others.items() if each.grad is not None]:
            raise RunError(f"{more[0]} got a gradient, which several ranks would not sum")
        found = pieces(self._reductions[elements.name], self._sizes, elements.start, elements.stop)
        return torch.cat([self._part(each) for each in found])

    def _part(self, piece: Piece) -> torch.Tensor:
        gradient = self._gradient(piece.name, piece.start, piece.stop)
        if gradient is None:
            raise RunError(f"{piece.name} got no gradient, or a sparse one")
        return gradient
