"""Asks Mt-KaHyPar (Gottesbüren et al. 2021-24) for partitions: the multilevel search that ours lacks.

Only its deterministic presets and one thread, so that equal questions get equal plans on every machine. It wants whole
numbers of 32 bits, so weights are scaled; and it returns a partition that is out of balance without a word, so loads
are for the caller to look at. A seed changes nothing for it on graphs as small as these; numbering the vertices anew
does.
"""

import functools
import math
import random
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from nfold.planning.hypergraph.block_limits import Limits
from nfold.planning.hypergraph.cell_hypergraph import Hypergraph
from nfold.planning.hypergraph.move_gains import MESSAGE_BYTES

PACKAGE = "mtkahypar"
_WEIGHT, _COST = 1 << 22, 1 << 30
"""Sums of all vertex weights, and of all nets wherever their pins may be."""


def is_available() -> bool:
    """Whether the package is installed."""
    return find_spec(PACKAGE) is not None


def partition(hypergraph: Hypergraph, limits: Limits, seed: int) -> list[int]:
    """Return a partition that is searched for without a start: for each vertex its block."""
    asked = _Question(hypergraph, limits, seed)
    context = asked.context("DETERMINISTIC")
    return asked.in_order(asked.graph(context).partition(context).get_partition())


def improve(hypergraph: Hypergraph, limits: Limits, blocks: Sequence[int]) -> list[int]:
    """Return a partition made from another one in a V-cycle: coarsened within blocks, refined on the way back."""
    asked = _Question(hypergraph, limits, seed=0)
    context = asked.context("DETERMINISTIC_QUALITY")
    # Its first two arguments are named the wrong way round.
    partitioned = asked.graph(context).create_partitioned_hypergraph(
        context, limits.num_blocks, [blocks[vertex] for vertex in asked.order]
    )
    partitioned.improve_partition(context, 1)
    return asked.in_order(partitioned.get_partition())


class _Question:
    """A hypergraph as the package wants it."""

    def __init__(self, hypergraph: Hypergraph, limits: Limits, seed: int) -> None:
        self._hypergraph, self._limits = hypergraph, limits
        self.order = list(range(hypergraph.num_vertices))
        if seed:
            random.Random(seed).shuffle(self.order)
        self._number = {vertex: number for number, vertex in enumerate(self.order)}
        factor = _WEIGHT / (sum(hypergraph.seconds) or 1.0)
        self._weights = [max(1, round(hypergraph.seconds[vertex] * factor)) for vertex in self.order]

    def context(self, preset: str) -> Any:
        """Return a configuration with the limits."""
        package = _package()
        package.set_seed(0)
        context = _initializer().context_from_preset(getattr(package.PresetType, preset))
        context.set_partitioning_parameters(self._limits.num_blocks, self._limits.epsilon, package.Objective.KM1)
        most = self._limits.seconds(sum(self._weights))
        context.set_individual_target_block_weights([math.ceil(each) for each in most])
        return context

    def graph(self, context: Any) -> Any:
        """Return the hypergraph."""
        nets, count = self._hypergraph.nets, self._limits.num_blocks
        most = sum((net.num_bytes + MESSAGE_BYTES) * min(len(net.pins), count) for net in nets)
        factor = min(1.0, _COST / (most or 1))
        graph = _initializer().create_hypergraph(
            context,
            len(self._weights),
            len(nets),
            [[self._number[pin] for pin in net.pins] for net in nets],
            self._weights,
            [max(1, round((net.num_bytes + MESSAGE_BYTES) * factor)) for net in nets],
        )
        if self._hypergraph.fixed:
            graph.add_fixed_vertices([self._hypergraph.fixed.get(vertex, -1) for vertex in self.order], count)
        return graph

    def in_order(self, numbered: Sequence[int]) -> list[int]:
        """Return blocks by vertex."""
        return [numbered[self._number[vertex]] for vertex in range(len(self.order))]


def _package() -> Any:
    import mtkahypar  # 64 MB that only a plan needs

    return mtkahypar


@functools.cache
def _initializer() -> Any:
    return _package().initialize(1, False)
