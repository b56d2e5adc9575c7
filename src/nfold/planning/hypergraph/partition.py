"""Divides a hypergraph among ranks of given shares and memory so that little crosses between them.

    starts     data parallelism, nested layouts, teams, layouts of other strategies, and Mt-KaHyPar from nothing
    repair     into the limits, then less traffic (`planning/hypergraph/repair.py`)
    V-cycle    Mt-KaHyPar from the best of each kind of start and the best of all, and repair again

Much stays in local minima: a good division of VGG-16 lies far from data parallelism, one of ResNet-50 near it. So
many starts are tried, cheap ones first, and the result is the best of all. How many is a matter of the hypergraph's
size, not of the clock: equal questions get equal answers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from nfold.planning.hypergraph import kahypar
from nfold.planning.hypergraph.block_limits import Limits, Memory
from nfold.planning.hypergraph.cell_hypergraph import Hypergraph, loads_s, traffic
from nfold.planning.hypergraph.nested_layouts import nested_layouts
from nfold.planning.hypergraph.repair import SLACK, repair
from nfold.planning.hypergraph.team_layouts import team_layouts
from nfold.planning.inputs.chunk_counts import share_chunks

WORK = 30_000
"""Pins times blocks that are searched well in a few tenths of a second. From nothing a quarter of it takes as long, and
where there is more nothing better is found: known layouts are good starts for large models."""
LARGE = 200_000
"""So many that finding layouts of other strategies takes as long as dividing."""
HUGE = 500_000
"""So many that one V-cycle takes a second."""
SMALL_WORK = 300
"""So few that all searches find the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How long a partition is searched for."""

    num_starts: int
    """Layouts that are repaired, the best by their traffic."""
    num_seeds: int
    """Numberings of the vertices from which Mt-KaHyPar begins from nothing."""
    num_cycles: int
    """Of what was found so far, the best that go through a V-cycle, beside the best of each kind of start."""
    num_layouts: int = 0
    """Placements of other strategies that are improved at their own balance."""
    is_of_every_kind: bool = False
    """Whether the best start of each kind is repaired and goes through a V-cycle, however it compares with others."""

    @classmethod
    def of(cls, hypergraph: Hypergraph, num_blocks: int) -> "Effort":
        """Return the effort for a hypergraph of this size that a plan has time for."""
        work = num_blocks * sum(len(net.pins) for net in hypergraph.nets)
        if work > WORK:
            return cls(num_starts=2, num_seeds=0, num_cycles=int(work <= HUGE), num_layouts=int(work <= LARGE))
        if work < SMALL_WORK:
            return cls(num_starts=4, num_seeds=1, num_cycles=1, num_layouts=2, is_of_every_kind=True)
        seeds = min(3, WORK // (4 * work or 1))
        return cls(num_starts=6, num_seeds=seeds, num_cycles=1, num_layouts=2, is_of_every_kind=True)

    def from_layouts(self) -> "Effort":
        """Return the smaller effort that is enough where good starts are known."""
        return replace(self, num_starts=min(4, self.num_starts), num_seeds=0, is_of_every_kind=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """The block of each vertex, with the bytes and seconds that follow."""

    blocks: tuple[int, ...]
    traffic_bytes: int
    loads_s: tuple[float, ...]
    """Of each block, on a reference node."""
    memory_bytes: tuple[int, ...]
    excess: float
    """By how much the limits are broken, as shares of them added up; 0 when all are kept, infinite where something is
    kept in no room."""


def partitions(
    hypergraph: Hypergraph, limits: Limits, layouts: Iterable[Sequence[int]] = (), effort: Effort | None = None
) -> list[Partition]:
    """Return different partitions, the best first: those within the limits, by traffic, then those that break them
    least.

    Args:
        hypergraph: what is divided.
        limits: of each block.
        layouts: further starts: blocks of every vertex.
        effort: how long to search; None: as long as its size allows.
    """
    effort = effort or Effort.of(hypergraph, limits.num_blocks)
    sent_bytes, firsts = _starts(hypergraph, limits, layouts)
    kinds = firsts if effort.is_of_every_kind else []
    others = sorted(sent_bytes.keys() - set(kinds), key=lambda layout: (sent_bytes[layout], layout))
    starts = [*kinds, *others[: max(0, effort.num_starts - len(kinds))]]
    repaired = [measure(hypergraph, limits, repair(hypergraph, limits, layout)) for layout in starts]
    found = repaired
    if kahypar.is_available():
        found = found + _from_nothing(hypergraph, limits, effort)
        best = (*repaired[: len(kinds)], *_best(found)[: effort.num_cycles])
        chosen = dict.fromkeys(each.blocks for each in best)
        found += [_cycled(hypergraph, limits, blocks) for blocks in chosen]
    return _best(found)


def _starts(
    hypergraph: Hypergraph, limits: Limits, layouts: Iterable[Sequence[int]]
) -> tuple[dict[tuple[int, ...], int], list[tuple[int, ...]]]:
    """Return the traffic of all starts, and the start of least traffic of each kind.

    The kinds lie far from each other, so the best of one that seems worse may well become the best of all.
    """
    kinds = (
        layouts,
        [_data_parallel(hypergraph, limits)],
        team_layouts(hypergraph, limits),
        nested_layouts(hypergraph, limits),
    )
    sent_bytes: dict[tuple[int, ...], int] = {}
    firsts = dict[tuple[int, ...], None]()
    for kind in kinds:
        of_kind = {tuple(layout): traffic(hypergraph, layout) for layout in kind}
        sent_bytes |= of_kind
        if of_kind:
            firsts[min(of_kind, key=lambda layout: (of_kind[layout], layout))] = None
    return sent_bytes, list(firsts)


def _data_parallel(hypergraph: Hypergraph, limits: Limits) -> list[int]:
    """Every rank has the whole model, and chunks by its share."""
    slowness = tuple(1 / share for share in limits.shares)
    counts = share_chunks(hypergraph.num_chunks, slowness)
    column = [block for block, count in enumerate(counts) for _ in range(count)]
    return hypergraph.with_samples(column * len(hypergraph.groups))


def improved(hypergraph: Hypergraph, limits: Limits, layout: Sequence[int]) -> list[Partition]:
    """Return what one layout is improved to: by moves of single cells, and by a V-cycle after them."""
    repaired = measure(hypergraph, limits, repair(hypergraph, limits, layout))
    return [repaired, _cycled(hypergraph, limits, repaired.blocks)] if kahypar.is_available() else [repaired]


def measure(hypergraph: Hypergraph, limits: Limits, blocks: Sequence[int]) -> Partition:
    """Return a partition with its bytes and seconds. O(pins)."""
    loads = loads_s(hypergraph, blocks, limits.num_blocks)
    memory = Memory(hypergraph, limits, blocks)
    used = [memory.used(block) for block in range(limits.num_blocks)]
    over_s = [load / most - 1 for load, most in zip(loads, limits.seconds(sum(loads)), strict=True) if most > 0]
    over = [_too_much(size, room) for size, room in zip(used, limits.memory_bytes, strict=True)]
    return Partition(
        blocks=tuple(blocks),
        traffic_bytes=traffic(hypergraph, blocks),
        loads_s=tuple(loads),
        memory_bytes=tuple(used),
        excess=sum(share for share in (*over_s, *over) if share > 2 * SLACK),
    )


def _too_much(used: int, room: float) -> float:
    """By what share of its room a block is too large; infinitely where it keeps anything and has no room."""
    if room <= 0:
        return inf if used else 0.0
    return used / room - 1


def _from_nothing(hypergraph: Hypergraph, limits: Limits, effort: Effort) -> list[Partition]:
    found = (kahypar.partition(hypergraph, limits, seed) for seed in range(effort.num_seeds))
    return [measure(hypergraph, limits, repair(hypergraph, limits, blocks)) for blocks in found]


def _cycled(hypergraph: Hypergraph, limits: Limits, start: Sequence[int]) -> Partition:
    blocks = kahypar.improve(hypergraph, limits, start)
    return measure(hypergraph, limits, repair(hypergraph, limits, blocks))


def _best(found: list[Partition]) -> list[Partition]:
    different = {each.blocks: each for each in found}.values()
    return sorted(different, key=lambda each: (each.excess, each.traffic_bytes, each.blocks))
