"""A partition under change: what every move of a vertex to another block would save, kept up to date move by move.

For a vertex, `pull[block]` is what its nets cost whose other pins are in that block; blocks where it has none are left
out, which are most of many. Moving it from block a to block b saves `pull[b] - pull[a]`: the nets that it follows to b,
less those that it leaves behind. A move changes the pulls of others only where a net enters a block, leaves it, or has
one pin left there (Fiduccia and Mattheyses 1982).
"""

from collections.abc import Iterator, Sequence

from nfold.planning.hypergraph.cell_hypergraph import Hypergraph

MESSAGE_BYTES = 1 << 10
"""A message costs as much as this many bytes: of two layouts with the same traffic, the one of fewer pieces is
better."""


class BlockAssignment:
    """The block of each vertex. `blocks` may be read, and changes only by `move`."""

    def __init__(self, hypergraph: Hypergraph, blocks: Sequence[int], num_blocks: int) -> None:
        self.hypergraph, self.num_blocks = hypergraph, num_blocks
        self.blocks = list(blocks)
        self.costs = [net.num_bytes + MESSAGE_BYTES for net in hypergraph.nets]
        self.incident: list[list[int]] = [[] for _ in range(hypergraph.num_vertices)]
        self.counts = [[0] * num_blocks for _ in hypergraph.nets]
        self.pull: list[dict[int, int]] = [{} for _ in range(hypergraph.num_vertices)]
        self.loads = [0.0] * num_blocks
        self._pins = [net.pins for net in hypergraph.nets]
        for vertex, block in enumerate(self.blocks):
            self.loads[block] += hypergraph.seconds[vertex]
        for index, pins in enumerate(self._pins):
            self._enter(index, pins)
        self.cost = sum(
            cost * (num_blocks - counts.count(0) - 1) for cost, counts in zip(self.costs, self.counts, strict=True)
        )

    def gain(self, vertex: int, block: int) -> int:
        """Return the bytes of a step that moving a vertex to a block would save; negative: it would cost more."""
        pull = self.pull[vertex]
        return pull.get(block, 0) - pull.get(self.blocks[vertex], 0)

    def gains_together(self, vertices: Sequence[int], block: int) -> Iterator[int]:
        """Yield what moving the first vertex would save, the first two at once, and so on. O(nets of all).

        Args:
            vertices: of one block, which is not `block`.
            block: where to.
        """
        source, saved = self.blocks[vertices[0]], 0
        inside: dict[int, int] = {}
        for vertex in vertices:
            for net in self.incident[vertex]:
                counts, moved = self.counts[net], inside.get(net, 0)
                if moved == 0 and counts[block] == 0:
                    saved -= self.costs[net]
                if moved + 1 == counts[source]:
                    saved += self.costs[net]
                inside[net] = moved + 1
            yield saved

    def move(self, vertex: int, block: int) -> Iterator[int]:
        """Move a vertex and yield the others whose pulls change. O(nets of it), and pins of nets that it opens or
        closes.

        The move is complete when the iterator is exhausted.
        """
        source, seconds = self.blocks[vertex], self.hypergraph.seconds[vertex]
        self.cost -= self.gain(vertex, block)
        self.blocks[vertex] = block
        self.loads[source] -= seconds
        self.loads[block] += seconds
        for net in self.incident[vertex]:
            counts, pins, cost = self.counts[net], self._pins[net], self.costs[net]
            counts[source] -= 1
            counts[block] += 1
            if counts[source] < 2:
                yield from self._change(pins, vertex, source, source if counts[source] else -1, -cost)
            if counts[block] < 3:
                yield from self._change(pins, vertex, block, block if counts[block] == 2 else -1, cost)

    def _change(self, pins: tuple[int, ...], moved: int, block: int, only: int, cost: int) -> Iterator[int]:
        """Change the pull to a block of all other pins, or of those in block `only`."""
        for pin in pins:
            if pin != moved and (only < 0 or self.blocks[pin] == only):
                pull = self.pull[pin]
                pull[block] = pull.get(block, 0) + cost
                if not pull[block]:
                    del pull[block]
                yield pin

    def _enter(self, index: int, pins: tuple[int, ...]) -> None:
        counts, cost = self.counts[index], self.costs[index]
        for pin in pins:
            counts[self.blocks[pin]] += 1
        present = {self.blocks[pin] for pin in pins}
        for pin in pins:
            self.incident[pin].append(index)
            own, pull = self.blocks[pin], self.pull[pin]
            for block in present:
                if block != own or counts[block] > 1:
                    pull[block] = pull.get(block, 0) + cost
