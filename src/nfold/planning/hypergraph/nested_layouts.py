"""Layouts whose layers lie on fewer and fewer ranks, as starts for a partitioner that sees one cell at a time.

    conv1   0 1 2 3 4 5 6 7 8 9         Early layers have little to reduce and much to send, so all ranks share them;
    conv2   0 1 2 3 4 5 6 7 8 9         late ones the other way round, so few ranks do. Each smaller set of ranks lies
    conv3   0 0 0 0 4 4 4 4 8 8         within the larger one, and a rank keeps the chunks that it has: a chunk's
    fc1     0 0 0 0 0 0 0 0 0 0         activations move only where its rank is not of the smaller set.

Which layer lies on how many ranks is found by a dynamic program over (layer, number of ranks): reducing a layer's
parameters among r ranks costs r - 1 times their bytes; going from r ranks to q moves the activations of the chunks
that the q have no room for; and what lies on r ranks must not be more work than they may have. All of it mirrored
where the first layers are the heavy ones (embeddings).
"""

from collections.abc import Iterator, Sequence

from nfold.planning.hypergraph.block_limits import Limits
from nfold.planning.hypergraph.cell_hypergraph import Hypergraph
from nfold.planning.hypergraph.team_layouts import row_bytes


def nested_layouts(hypergraph: Hypergraph, limits: Limits) -> Iterator[list[int]]:
    """Yield blocks of every vertex for some families of such layouts. O(groups x ranks^2 + pins)."""
    seen = set[tuple[int, ...]]()
    fast_first = sorted(range(limits.num_blocks), key=lambda block: (-limits.shares[block], block))
    for is_mirrored in (False, True):
        sizes = row_bytes(hypergraph, mirrored=is_mirrored)
        for order in (fast_first, fast_first[::-1]):
            program = _Program(hypergraph, limits, order, sizes, is_mirrored)
            for counts in _families(limits.num_blocks):
                ranks = program.ranks_per_group(counts)
                layout = _lay(hypergraph, limits, order, ranks)
                if tuple(layout) not in seen:
                    seen.add(tuple(layout))
                    yield layout


def _families(num_blocks: int) -> list[tuple[int, ...]]:
    """Numbers of ranks that a layer may lie on: any up to 8, doubling above; all ranks or one; all or a few."""
    doubling = [count for count in (1 << power for power in range(3, 12)) if count < num_blocks]
    every = (*range(1, min(num_blocks, 8)), *doubling, num_blocks)
    found = [tuple(sorted(set(every))), (1, num_blocks), (1, max(1, num_blocks // 2), num_blocks), (num_blocks,)]
    return list(dict.fromkeys(tuple(sorted(set(family))) for family in found))


class _Program:
    """Finds how many ranks each group should lie on, fewer and fewer from the first group to the last."""

    def __init__(
        self,
        hypergraph: Hypergraph,
        limits: Limits,
        order: Sequence[int],
        sizes: tuple[list[int], list[int]],
        is_mirrored: bool,
    ) -> None:
        self._num_groups = len(hypergraph.groups)
        self._is_mirrored = is_mirrored
        self._row_bytes, self._crossing = sizes
        rows_s = hypergraph.row_seconds
        self._left_s = _suffix_sums(rows_s[::-1] if is_mirrored else rows_s)
        total_s = sum(rows_s)
        self._share_s = {
            count: total_s * sum(limits.shares[block] for block in order[:count]) for count in range(1, len(order) + 1)
        }
        self._room_s = {count: share_s * (1 + limits.epsilon) for count, share_s in self._share_s.items()}

    def ranks_per_group(self, counts: tuple[int, ...]) -> list[int]:
        """Return the number of ranks of each group that costs least under the model of this module."""
        best: dict[int, tuple[float, tuple[int, ...]]] = {counts[-1]: (0.0, ())}
        for group in range(self._num_groups):
            best = {
                count: min(self._steps(best, group, count))
                for count in counts
                if count == counts[-1] or self._left_s[group] <= self._room_s[count]
            }
        _, ranks = min(best.values())
        return list(ranks[::-1] if self._is_mirrored else ranks)

    def _steps(
        self, best: dict[int, tuple[float, tuple[int, ...]]], group: int, count: int
    ) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Yield what it costs to lie on `count` ranks after having lain on more."""
        for before, (cost, ranks) in best.items():
            if before >= count:
                moved = self._crossing[group] * self._moved(group, count, before) if count < before else 0.0
                yield cost + moved + (count - 1) * self._row_bytes[group], (*ranks, count)

    def _moved(self, group: int, count: int, before: int) -> float:
        """Return the share of chunks whose rank changes: who has later work to do has less room for earlier work."""
        room_s = self._share_s[before] - self._left_s[group]
        return 1 - max(0.0, self._share_s[count] - self._left_s[group]) / room_s if room_s > 0 else 1.0


def _suffix_sums(values: list[float]) -> list[float]:
    sums = [0.0]
    for value in reversed(values):
        sums.append(sums[-1] + value)
    return sums[:0:-1]


def _lay(hypergraph: Hypergraph, limits: Limits, order: Sequence[int], ranks: list[int]) -> list[int]:
    """Give the rows on the fewest ranks out first; a rank takes as many chunks of a row as it still has room for."""
    chunks, rows_s, total_s = hypergraph.num_chunks, hypergraph.row_seconds, sum(hypergraph.seconds)
    left_s = {block: share * total_s for block, share in enumerate(limits.shares)}
    row_of: dict[int, list[int]] = {}
    before: list[int] | None = None
    for count in sorted(set(ranks)):
        work_s = sum(row_s for row_s, own in zip(rows_s, ranks, strict=True) if own == count)
        sharing = order[:count]
        parts = _portions([max(left_s[block], 0.0) for block in sharing], chunks)
        before = row_of[count] = _columns(dict(zip(sharing, parts, strict=True)), before, chunks)
        for block in before:
            left_s[block] -= work_s / chunks
    blocks = [block for count in ranks for block in row_of[count]]
    return hypergraph.with_samples(blocks)


def _portions(weights: list[float], chunks: int) -> list[int]:
    """Cut the chunks into whole portions as near to the weights as can be: by largest remainder."""
    total = sum(weights)
    exact = [weight / total * chunks if total > 0 else chunks / len(weights) for weight in weights]
    parts = [int(each) for each in exact]
    behind = sorted(range(len(exact)), key=lambda index: (parts[index] - exact[index], index))
    for index in behind[: chunks - sum(parts)]:
        parts[index] += 1
    return parts


def _columns(portions: dict[int, int], before: list[int] | None, chunks: int) -> list[int]:
    """Return the owner of each chunk: those who have it in the rows of fewer ranks keep what their portion allows."""
    left = dict(portions)
    owners = [-1] * chunks
    for chunk, block in enumerate(before or ()):
        if left.get(block, 0) > 0:
            owners[chunk] = block
            left[block] -= 1
    waiting = [block for block, count in left.items() for _ in range(count)]
    for chunk in range(chunks):
        if owners[chunk] < 0:
            owners[chunk] = waiting.pop(0)
    return owners
