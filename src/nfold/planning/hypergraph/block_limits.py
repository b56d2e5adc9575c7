"""What each block of a partition may hold: seconds by its rank's speed, bytes by its node's memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from nfold.planning.hypergraph.cell_hypergraph import Hypergraph
from nfold.planning.scheduling.windows import lean_window


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of work and memory, with one entry for each block."""

    shares: tuple[float, ...]
    """Of the work: the speeds of the blocks' ranks, divided by their sum."""
    epsilon: float
    """How far a block's work may be above its share."""
    memory_bytes: tuple[float, ...]
    """For states and activations."""

    @property
    def num_blocks(self) -> int:
        """The number of blocks: ranks that compute."""
        return len(self.shares)

    def seconds(self, total_s: float) -> list[float]:
        """Return the most seconds of work that each block may have, of `total_s` in all."""
        return [(1 + self.epsilon) * share * total_s for share in self.shares]


class Memory:
    """The bytes of each block while vertices move: states once for each block, activations of the chunks in flight."""

    def __init__(self, hypergraph: Hypergraph, limits: Limits, blocks: Sequence[int]) -> None:
        self._hypergraph, self._limits = hypergraph, limits
        count, chunks = limits.num_blocks, hypergraph.num_chunks
        self._states_of: list[list[int]] = [[] for _ in hypergraph.groups]
        for index, state in enumerate(hypergraph.states):
            for group in state.groups:
                self._states_of[group].append(index)
        self._window = lean_window(count)
        self._cells = [[0] * len(hypergraph.states) for _ in range(count)]
        self._saved = [[0] * chunks for _ in range(count)]
        self._resident = [0] * count
        self._used: dict[int, int] = {}
        """Of blocks that have not changed since they were asked for."""
        self._whole = [sum(hypergraph.saved_bytes[chunk : hypergraph.num_cells : chunks]) for chunk in range(chunks)]
        for vertex in range(hypergraph.num_cells):
            self.enter(vertex, blocks[vertex])
        self.binds = self._most() > min(limits.memory_bytes)

    def enter(self, vertex: int, block: int) -> None:
        """Add a vertex to a block."""
        group, chunk = divmod(vertex, self._hypergraph.num_chunks)
        self._saved[block][chunk] += self._hypergraph.saved_bytes[vertex]
        self._used.pop(block, None)
        for index in self._states_of[group]:
            self._cells[block][index] += 1
            if self._cells[block][index] == 1:
                self._resident[block] += self._hypergraph.states[index].num_bytes

    def leave(self, vertex: int, block: int) -> None:
        """Remove a vertex from a block."""
        group, chunk = divmod(vertex, self._hypergraph.num_chunks)
        self._saved[block][chunk] -= self._hypergraph.saved_bytes[vertex]
        self._used.pop(block, None)
        for index in self._states_of[group]:
            self._cells[block][index] -= 1
            if self._cells[block][index] == 0:
                self._resident[block] -= self._hypergraph.states[index].num_bytes

    def used(self, block: int) -> int:
        """Return the bytes of a block. O(chunks)."""
        if block not in self._used:
            self._used[block] = self._resident[block] + _in_flight(self._saved[block], self._whole, self._window)
        return self._used[block]

    def excess(self, block: int) -> float:
        """Return the bytes by which a block exceeds its memory; 0 when it fits."""
        return max(0.0, self.used(block) - self._limits.memory_bytes[block])

    def admits(self, vertices: Sequence[int], block: int) -> bool:
        """Return whether a block has room for vertices of another one, or grows no further above its limit."""
        if not self.binds:
            return True
        saved = self._saved[block].copy()
        groups = set[int]()
        for vertex in vertices:
            group, chunk = divmod(vertex, self._hypergraph.num_chunks)
            groups.add(group)
            saved[chunk] += self._hypergraph.saved_bytes[vertex]
        new = {index for group in groups for index in self._states_of[group] if not self._cells[block][index]}
        resident = self._resident[block] + sum(self._hypergraph.states[index].num_bytes for index in new)
        most = max(self._limits.memory_bytes[block], self.used(block))
        return resident + _in_flight(saved, self._whole, self._window) <= most

    def _most(self) -> int:
        return sum(state.num_bytes for state in self._hypergraph.states) + sum(self._whole)


def _in_flight(saved: list[int], whole: list[int], window: int) -> int:
    """Of chunks that a rank computes alone it keeps one at a time; of the others, which it waits for, several.

    As many as if all ranks were behind it, which of one rank is true: who else a chunk goes to changes move by move.
    """
    alone = max((size for size, every in zip(saved, whole, strict=True) if size == every), default=0)
    shared = sorted([size for size, every in zip(saved, whole, strict=True) if size < every], reverse=True)
    return alone + sum(shared[:window])
