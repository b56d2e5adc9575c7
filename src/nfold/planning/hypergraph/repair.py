"""Brings a partition within its limits, then lowers its traffic without leaving them again.

1. While a block holds too much memory, move a whole row out of it: all its cells of one group, since only that frees
   the group's parameters. The row that costs the least traffic per byte freed goes first.
2. While a block has too much work, move the run of cells of one chunk out of it that costs the least traffic per
   second.
3. Passes of Fiduccia and Mattheyses (1982): each cell moves at most once, the best allowed move first even where it
   costs traffic, and the pass ends at the best state that it has seen.

Deterministic: ties go to the lower vertex and block.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from nfold.planning.hypergraph.block_limits import Limits, Memory
from nfold.planning.hypergraph.cell_hypergraph import Hypergraph
from nfold.planning.hypergraph.move_gains import BlockAssignment

PASSES = 6
SLACK = 1e-9
"""Of limits, for sums of floats."""
NUM_ROOMY = 2
"""Blocks with the most room to which a run may go, beside those of its neighbours."""
LEAST_PATIENCE = 60
"""Moves without a new best after which a pass ends, or a tenth of the vertices if that is more."""


def repair(hypergraph: Hypergraph, limits: Limits, blocks: Sequence[int]) -> list[int]:
    """Return a partition that keeps the limits if this search finds one, with little traffic.

    About O(passes x pins x blocks). Whether limits are kept is for the caller to look at.
    """
    if limits.num_blocks == 1:
        return list(blocks)
    search = _Search(hypergraph, limits, blocks)
    search.fit_memory()
    search.balance()
    for _ in range(PASSES):
        if not search.improve():
            break
    return search.board.blocks


class _Search:
    """One partition on its way."""

    def __init__(self, hypergraph: Hypergraph, limits: Limits, blocks: Sequence[int]) -> None:
        self.board = BlockAssignment(hypergraph, blocks, limits.num_blocks)
        self._memory = Memory(hypergraph, limits, blocks)
        self._seconds, self._chunks = hypergraph.seconds, hypergraph.num_chunks
        self._top_s = [most * (1 + SLACK) for most in limits.seconds(sum(hypergraph.seconds))]
        self._free = [vertex for vertex in range(hypergraph.num_cells) if vertex not in hypergraph.fixed]
        self._blocks = range(limits.num_blocks)

    # 1. Memory

    def fit_memory(self) -> None:
        """Move rows out of blocks that hold too much; each row moves once at most."""
        moved = set[tuple[int, ...]]()
        for block in self._blocks:
            while self._memory.binds and self._memory.excess(block) > 0:
                best = min(self._rows_out(block, moved), default=None)
                if best is None:
                    break
                _, target, row = best
                moved.add(row)
                self._put(row, target)

    def _rows_out(self, block: int, moved: set[tuple[int, ...]]) -> Iterator[tuple[float, int, tuple[int, ...]]]:
        """Yield (traffic per byte freed, target, cells) of what may leave a block."""
        rows: dict[int, list[int]] = {}
        for vertex in self._free:
            if self.board.blocks[vertex] == block:
                rows.setdefault(vertex // self._chunks, []).append(vertex)
        for cells in rows.values():
            row = tuple(cells)
            freed = self._freed(row, block)
            for target in self._blocks:
                if target != block and row not in moved and freed > 0 and self._memory.admits(row, target):
                    *_, saved = self.board.gains_together(row, target)
                    yield -saved / freed, target, row

    def _freed(self, row: tuple[int, ...], block: int) -> int:
        before = self._memory.used(block)
        for vertex in row:
            self._memory.leave(vertex, block)
        after = self._memory.used(block)
        for vertex in row:
            self._memory.enter(vertex, block)
        return before - after

    def _put(self, vertices: Sequence[int], target: int) -> None:
        for vertex in vertices:
            self._move(vertex, target)

    def _move(self, vertex: int, target: int) -> list[int]:
        self._memory.leave(vertex, self.board.blocks[vertex])
        self._memory.enter(vertex, target)
        return list(self.board.move(vertex, target))

    # 2. Balance

    def balance(self) -> None:
        """Move runs out of blocks with too much work, each cell once at most."""
        moved = set[int]()
        while True:
            best = min(self._runs_out(moved), default=None)
            if best is None:
                return
            _, run, target = best
            moved.update(run)
            self._put(run, target)

    def _runs_out(self, moved: set[int]) -> Iterator[tuple[float, tuple[int, ...], int]]:
        """Yield (traffic per second, run, target) of what may leave the block that is furthest above its limit."""
        loads, top_s = self.board.loads, self._top_s
        source = max(self._blocks, key=lambda block: loads[block] - top_s[block])
        excess_s = loads[source] - top_s[source]
        if excess_s <= 0:
            return
        roomy = sorted((block for block in self._blocks if block != source), key=lambda b: loads[b] - top_s[b])
        for run, neighbours in self._runs(source, moved):
            for target in sorted({*neighbours, *roomy[:NUM_ROOMY]}):
                seconds = 0.0
                for length, saved in enumerate(self.board.gains_together(run, target), 1):
                    seconds += self._seconds[run[length - 1]]
                    if loads[target] + seconds > top_s[target]:
                        break
                    if seconds > 0 and self._memory.admits(run[:length], target):
                        yield -saved / min(seconds, excess_s), run[:length], target

    def _runs(self, block: int, moved: set[int]) -> Iterator[tuple[tuple[int, ...], set[int]]]:
        """Yield the cells of a block that follow each other in a chunk, from either end, with the blocks beside."""
        blocks, chunks = self.board.blocks, self._chunks
        for chunk in range(chunks):
            run: list[int] = []
            for vertex in (*range(chunk, len(self._free), chunks), -1):
                if vertex >= 0 and blocks[vertex] == block and vertex not in moved:
                    run.append(vertex)
                elif run:
                    ends = (run[0] - chunks, run[-1] + chunks)
                    beside = {blocks[end] for end in ends if 0 <= end < len(self._free)} - {block}
                    yield tuple(run), beside
                    if len(run) > 1:
                        yield tuple(run[::-1]), beside
                    run = []

    # 3. Traffic

    def improve(self) -> bool:
        """Play one pass; return whether it found less traffic."""
        board, best_cost = self.board, self.board.cost
        first_cost, moves, kept = best_cost, list[tuple[int, int]](), 0
        patience = max(LEAST_PATIENCE, len(self._free) // 10)
        locked = set[int]()
        heap = [entry for vertex in self._free for entry in self._entry(vertex)]
        heapify(heap)
        while heap and len(moves) - kept < patience:
            gain, vertex, target = heappop(heap)
            if vertex in locked:
                continue
            now = self._entry(vertex)
            if now != [(gain, vertex, target)]:
                for entry in now:
                    heappush(heap, entry)
                continue
            locked.add(vertex)
            moves.append((vertex, board.blocks[vertex]))
            for other in self._move(vertex, target):
                if other not in locked and other < len(self._free):
                    for entry in self._entry(other):
                        heappush(heap, entry)
            if board.cost < best_cost:
                best_cost, kept = board.cost, len(moves)
        for vertex, source in reversed(moves[kept:]):
            self._move(vertex, source)
        return best_cost < first_cost

    def _entry(self, vertex: int) -> list[tuple[int, int, int]]:
        """Return the best allowed move of a vertex to where it has neighbours, if there is one, for a heap."""
        pull, own, loads, top_s = self.board.pull[vertex], self.board.blocks[vertex], self.board.loads, self._top_s
        seconds, best, best_value = self._seconds[vertex], -1, 0
        for block, value in pull.items():
            if block == own or value < best_value or (value == best_value and block > best):
                continue
            if loads[block] + seconds <= top_s[block]:
                if self._memory.binds and not self._memory.admits((vertex,), block):
                    continue
                best, best_value = block, value
        return [(pull.get(own, 0) - best_value, vertex, best)] if best >= 0 else []
