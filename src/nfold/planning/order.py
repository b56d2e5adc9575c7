"""Puts each rank's compute tasks into one order, fixed before the run.

A list schedule in virtual time: a free rank takes ready backward work before new forward work, older chunks first, and
starts forwards only for the k oldest chunks that it has not finished, its window, so that kept activations are bounded.
The oldest chunk is always admitted everywhere, so the order cannot deadlock. Fixed orders make sums, and so runs,
repeatable. With a window of p - s chunks on stage s of p this is 1F1B (PipeDream, Narayanan et al. 2019, section 3.2):

    0F0 0F1 0F2 0B0 0F3 0B1 ..         stage, forward or backward, chunk
        1F0 1F1 1B0 1F2 1B1 ..
            2F0 2B0 2F1 2B1 ..
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from nfold.errors import InternalError


@dataclass(frozen=True, slots=True)
class Cell:
    """One forward or backward of a segment for a chunk."""

    rank: int
    backward: bool
    chunk: int
    segment: int


def order_cells(
    after: Mapping[Cell, frozenset[Cell]], seconds: Mapping[Cell, float], windows: Mapping[int, int]
) -> dict[int, tuple[Cell, ...]]:
    """Return each rank's cells in the order in which it will compute them.

    Args:
        after: for each cell the cells, of any rank, that must be done first.
        seconds: estimated duration of each cell.
        windows: how many unfinished chunks each rank may have begun, at least 1.

    Returns:
        rank -> cells; O(cells log cells).
    """
    game = _Game(after, seconds, windows)
    game.play()
    if any(game.waiting.values()):
        raise InternalError(f"{sum(map(bool, game.waiting.values()))} cells wait for each other in a circle")
    return {rank: tuple(state.order) for rank, state in game.ranks.items()}


@dataclass(slots=True)
class _Rank:
    """What one rank may do next."""

    window: int
    ready: list[tuple[bool, int, int, Cell]] = field(default_factory=list)
    unfinished: Counter[int] = field(default_factory=Counter)
    """Cells left of each chunk."""
    order: list[Cell] = field(default_factory=list)
    is_busy: bool = False

    def push(self, cell: Cell) -> None:
        """Note a cell that waits for nothing more: backward before forward, older chunks first."""
        position = -cell.segment if cell.backward else cell.segment
        heapq.heappush(self.ready, (not cell.backward, cell.chunk, position, cell))

    def take(self) -> Cell | None:
        """Take the best ready cell whose chunk is admitted; chunks are few, so the skipped ones are put back."""
        admitted = sorted(chunk for chunk, left in self.unfinished.items() if left)[: self.window]
        skipped, found = [], None
        while self.ready and found is None:
            entry = heapq.heappop(self.ready)
            if entry[3].backward or entry[3].chunk in admitted:
                found = entry[3]
            else:
                skipped.append(entry)
        for entry in skipped:
            heapq.heappush(self.ready, entry)
        return found


class _Game:
    """One step in virtual time."""

    def __init__(
        self, after: Mapping[Cell, frozenset[Cell]], seconds: Mapping[Cell, float], windows: Mapping[int, int]
    ) -> None:
        self.ranks = {rank: _Rank(windows[rank]) for rank in sorted({cell.rank for cell in after})}
        self.waiting = {cell: len(before) for cell, before in after.items()}
        self._seconds = seconds
        self._dependents: dict[Cell, list[Cell]] = defaultdict(list)
        self._ends: list[tuple[float, int, Cell]] = []
        """(when, number, cell) of what is being computed."""
        self._num_started = 0
        for cell, before in after.items():
            self.ranks[cell.rank].unfinished[cell.chunk] += 1
            for earlier in before:
                self._dependents[earlier].append(cell)

    def play(self) -> None:
        """Compute cell after cell. What ends in the same instant ends before anything begins, so no tie is lost."""
        for cell, count in self.waiting.items():
            if count == 0:
                self.ranks[cell.rank].push(cell)
        self._start(set(self.ranks), 0.0)
        while self._ends:
            now_s, touched = self._ends[0][0], set[int]()
            while self._ends and self._ends[0][0] == now_s:
                touched |= self._end(heapq.heappop(self._ends)[2])
            self._start(touched, now_s)

    def _start(self, ranks: set[int], now_s: float) -> None:
        """Let free ranks take their next cell."""
        for rank in sorted(ranks):
            state = self.ranks[rank]
            cell = None if state.is_busy else state.take()
            if cell is not None:
                state.is_busy = True
                self._num_started += 1
                heapq.heappush(self._ends, (now_s + self._seconds[cell], self._num_started, cell))

    def _end(self, cell: Cell) -> set[int]:
        """Note that a cell is done; return the ranks that may have something new to do."""
        state = self.ranks[cell.rank]
        state.is_busy = False
        state.order.append(cell)
        state.unfinished[cell.chunk] -= 1
        for dependent in self._dependents[cell]:
            self.waiting[dependent] -= 1
            if self.waiting[dependent] == 0:
                self.ranks[dependent.rank].push(dependent)
        return {cell.rank, *(dependent.rank for dependent in self._dependents[cell])}
