"""Layouts of consecutive teams of ranks, as starts for a partitioner that sees one cell at a time.

    conv1   0 0 0 0 0 1 1 1 1 1         A team computes consecutive layers, each rank its chunks of them. Work is cut at
    conv2   0 0 0 0 1 1 1 1 2 2         the teams' shares exactly, so a layer at a border belongs to both: here team
    conv3   2 2 2 2 2 2 2 2 2 2         {0, 1} has some chunks of conv2, and team {2} the others.

Which teams is found by a dynamic program over the ranks dealt out so far: a team of q ranks reduces the parameters
that it meets q - 1 times, and the activations at its end all move.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from nfold.planning.hypergraph.block_limits import Limits
from nfold.planning.hypergraph.cell_hypergraph import Hypergraph


def team_layouts(hypergraph: Hypergraph, limits: Limits) -> Iterator[list[int]]:
    """Yield blocks of every vertex for teams of any size, and of small ones. O(ranks^2 x groups + pins)."""
    seen = set[tuple[int, ...]]()
    fast_first = sorted(range(limits.num_blocks), key=lambda block: (-limits.shares[block], block))
    sizes = row_bytes(hypergraph)
    for order in (fast_first, fast_first[::-1]):
        program = _Program(hypergraph, limits, order, sizes)
        for largest in dict.fromkeys((limits.num_blocks - 1, limits.num_blocks // 2, 1)):
            if largest > 0:
                layout = _lay(hypergraph, program, order, program.ends(largest))
                if tuple(layout) not in seen:
                    seen.add(tuple(layout))
                    yield layout


class _Program:
    """Finds the teams that move the fewest bytes."""

    def __init__(
        self, hypergraph: Hypergraph, limits: Limits, order: Sequence[int], sizes: tuple[list[int], list[int]]
    ) -> None:
        self.row_ends_s = list(accumulate(hypergraph.row_seconds))
        total_s = self.row_ends_s[-1]
        self.share_ends_s = [0.0, *accumulate(limits.shares[block] * total_s for block in order)]
        self._row_bytes, self._crossing = sizes

    def ends(self, largest: int) -> list[int]:
        """Return after how many ranks each team ends, for teams of at most `largest`."""
        count = len(self.share_ends_s) - 1
        best: list[tuple[float, list[int]]] = [(0.0, [])]
        for end in range(1, count + 1):
            best.append(
                min(
                    (best[begin][0] + self._cost(begin, end), [*best[begin][1], end])
                    for begin in range(max(0, end - largest), end)
                )
            )
        return best[count][1]

    def _cost(self, begin: int, end: int) -> float:
        """Bytes of a team of the ranks [begin, end): its reductions, and what comes to it from the team before."""
        first, last = self.share_ends_s[begin], self.share_ends_s[end]
        cost, row_begin_s = 0.0, 0.0
        for row, row_end_s in enumerate(self.row_ends_s):
            if row_begin_s <= first < row_end_s and begin:
                cost += self._crossing[row] + self._row_bytes[row]
            if row_begin_s < last and first < row_end_s:
                cost += (end - begin - 1) * self._row_bytes[row]
            row_begin_s = row_end_s
        return cost


def row_bytes(hypergraph: Hypergraph, *, mirrored: bool = False) -> tuple[list[int], list[int]]:
    """Return the bytes of the nets that lie on all chunks, by their first group, and of those that cross into each
    group.

    Args:
        hypergraph: of the cells.
        mirrored: groups are counted from the last.
    """
    num_groups, chunks = len(hypergraph.groups), hypergraph.num_chunks
    rows, crossing = [0] * num_groups, [0] * (num_groups + 1)
    for net in hypergraph.nets:
        groups = [pin // chunks for pin in net.pins if pin < hypergraph.num_cells]
        places = [num_groups - 1 - group for group in groups] if mirrored else groups
        first, last = min(places), max(places)
        if len({pin % chunks for pin in net.pins}) > 1:
            rows[first] += net.num_bytes
        elif first < last:
            crossing[first + 1] += net.num_bytes
            crossing[last + 1] -= net.num_bytes
    return rows, list(accumulate(crossing[:num_groups]))


def _lay(hypergraph: Hypergraph, program: _Program, order: Sequence[int], ends: list[int]) -> list[int]:
    """Deal a row's chunks out to the teams that it meets, and within a team to its ranks."""
    chunks, blocks = hypergraph.num_chunks, list[int]()
    begin_s = 0.0
    for end_s in program.row_ends_s:
        for chunk in range(chunks):
            middle_s = begin_s + (end_s - begin_s) * (chunk + 0.5) / chunks
            team = next(
                (index for index, end in enumerate(ends) if middle_s < program.share_ends_s[end]), len(ends) - 1
            )
            blocks.append(_member(program.share_ends_s, order, ends, team, (chunk + 0.5) / chunks))
        begin_s = end_s
    return hypergraph.with_samples(blocks)


def _member(share_ends_s: list[float], order: Sequence[int], ends: list[int], team: int, place: float) -> int:
    """Return the rank of a team that takes the chunk at a place between 0 and 1: by the ranks' shares of the team."""
    begin, end = (ends[team - 1] if team else 0), ends[team]
    wanted = share_ends_s[begin] + place * (share_ends_s[end] - share_ends_s[begin])
    index = next((index for index in range(begin, end) if wanted < share_ends_s[index + 1]), end - 1)
    return order[index]
