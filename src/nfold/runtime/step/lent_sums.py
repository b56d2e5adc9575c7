"""What ranks give to a newcomer that plays their steps too: all sums of a step, each from one of them.

Several ranks sum gradients in buckets. One that trains alone puts its gradients into those of the plan that follows.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.core.schedule import StatisticsGroup
from nfold.core.tasks import Elements
from nfold.errors import RunError
from nfold.planning.reductions.norm_messages import FACTOR
from nfold.planning.reductions.ring_and_server_messages import summed_first
from nfold.runtime.parameters.buffers import Piece, pieces

TellSum = Callable[[Elements], None]
"""Called with elements of a bucket once they are summed."""


def lent_sums(
    rank: int, reductions: Sequence[Reduction], graph: ModelGraph, groups: Sequence[StatisticsGroup], chunks: int
) -> tuple[Elements, ...]:
    """Return which sums of a step come from a rank; all ranks together give all.

    Args:
        rank: of those that sum.
        reductions: of these, each a ring of all of them, or of the only one.
        graph: of the program.
        groups: of batch statistics.
        chunks: of a step.
    """
    own = tuple(piece for each in reductions for piece in summed_first(each, rank))
    if rank != reductions[0].members[0]:
        return own
    if len(reductions[0].members) == 1 and reductions[0].fraction_bits is None:  # batch norms update theirs as they run
        rows = tuple(Elements("running", each.module, 0, 2 * each.num_channels + 1) for each in graph.statistics)
    else:
        rows = tuple(Elements("statistics", each.name, 0, chunks * each.num_elements) for each in groups)
    return (*own, *rows, *([FACTOR] if graph.clips_gradients else []))


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
