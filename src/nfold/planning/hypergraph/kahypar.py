"""Asks Mt-KaHyPar (Gottesbüren et al. 2021-24) for partitions: the multilevel search that ours lacks.

Only its deterministic presets and one thread, so that equal questions get equal plans on every machine. It wants whole
numbers of 32 bits, so weights are scaled; and it returns a partition that is out of balance without a word, so loads
are for the caller to look at. A seed changes nothing for it on graphs as small as these; numbering the vertices anew
does.
"""

import math
import random
from collections.abc import Sequence
from importlib.util import find_spec

from nfold.planning.hypergraph.block_limits import Limits
from nfold.planning.hypergraph.cell_hypergraph import Hypergraph
from nfold.planning.hypergraph.kahypar_answers import PACKAGE, Question
from nfold.planning.hypergraph.kahypar_processes import Processes
from nfold.planning.hypergraph.move_gains import MESSAGE_BYTES

_WEIGHT, _COST = 1 << 22, 1 << 30
"""Sums of all vertex weights, and of all nets wherever their pins may be."""
_PROCESSES = Processes()


def is_available() -> bool:
    """Whether the package is installed."""
    return find_spec(PACKAGE) is not None


def partition(hypergraph: Hypergraph, limits: Limits, seed: int) -> list[int]:
    """Return a partition that is searched for without a start: for each vertex its block."""
    numbered = _Numbered(hypergraph, limits, seed)
    return numbered.in_order(_PROCESSES.ask(numbered.question("DETERMINISTIC")))


def improve(hypergraph: Hypergraph, limits: Limits, blocks: Sequence[int]) -> list[int]:
    """Return a partition made from another one in a V-cycle: coarsened within blocks, refined on the way back."""
    numbered = _Numbered(hypergraph, limits, seed=0)
    return numbered.in_order(_PROCESSES.ask(numbered.question("DETERMINISTIC_QUALITY", blocks)))


class _Numbered:
    """A hypergraph as the package wants it."""

    def __init__(self, hypergraph: Hypergraph, limits: Limits, seed: int) -> None:
        self._hypergraph, self._limits = hypergraph, limits
        self._order = list(range(hypergraph.num_vertices))
        if seed:
            random.Random(seed).shuffle(self._order)
        self._number = {vertex: number for number, vertex in enumerate(self._order)}

    def question(self, preset: str, blocks: Sequence[int] = ()) -> Question:
        """Return what is asked: with blocks, to improve them."""
        factor = _WEIGHT / (sum(self._hypergraph.seconds) or 1.0)
        weights = [max(1, round(self._hypergraph.seconds[vertex] * factor)) for vertex in self._order]
        fixed = self._hypergraph.fixed
        return Question(
            preset=preset,
            num_blocks=self._limits.num_blocks,
            epsilon=self._limits.epsilon,
            most_weights=[math.ceil(most) for most in self._limits.seconds(sum(weights))],
            weights=weights,
            nets=[[self._number[pin] for pin in net.pins] for net in self._hypergraph.nets],
            costs=self._costs(),
            fixed=[fixed.get(vertex, -1) for vertex in self._order] if fixed else [],
            blocks=[blocks[vertex] for vertex in self._order] if blocks else [],
        )

    def in_order(self, numbered: Sequence[int]) -> list[int]:
        """Return blocks by vertex."""
        return [numbered[self._number[vertex]] for vertex in range(len(self._order))]

    def _costs(self) -> list[int]:
        """Of nets."""
        nets, count = self._hypergraph.nets, self._limits.num_blocks
        most = sum((net.num_bytes + MESSAGE_BYTES) * min(len(net.pins), count) for net in nets)
        factor = min(1.0, _COST / (most or 1))
        return [max(1, round((net.num_bytes + MESSAGE_BYTES) * factor)) for net in nets]
