"""Puts each rank's compute tasks into one order, fixed before the run.

A list schedule in virtual time: a free rank takes ready backward work before new forward work, older chunks first, and
begins a chunk only while it has begun fewer than k that are not finished, its window, so that kept activations are
bounded. Its oldest unfinished chunk it may always begin, so the order cannot deadlock (and k + 1 chunks may be begun).
Fixed orders make sums, and so runs, repeatable. With a window of p - s chunks on stage s of p this is 1F1B (PipeDream,
Narayanan et al. 2019, section 3.2):

    0F0 0F1 0F2 0B0 0F3 0B1 ..         stage, forward or backward, chunk
        1F0 1F1 1B0 1F2 1B1 ..
            2F0 2B0 2F1 2B1 ..
"""

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nfold.errors import InternalError


class Cell(NamedTuple):
    """One forward or backward of a segment for a chunk."""

    rank: int
    backward: bool
    chunk: int
    segment: int


Delivery = Callable[[Cell, int, float], float]
"""(a cell that has just ended, another rank, now) -> when that rank has what the cell made."""


@dataclass(frozen=True, slots=True)
class PlayedOrder:
    """A step in virtual time."""

    order: dict[int, tuple[Cell, ...]]
    """rank -> its cells as it computes them."""
    ends_s: dict[Cell, float]


def order_cells(
    after: Mapping[Cell, frozenset[Cell]], seconds: Mapping[Cell, float], windows: Mapping[int, int]
) -> dict[int, tuple[Cell, ...]]:
    """Return the order in which each rank computes its cells, if messages take no time. O(cells log cells).

    Args:
        after: for each cell the cells, of any rank, that must end before it begins.
        seconds: estimated seconds of each cell.
        windows: for each rank how many chunks it may have begun and not finished, at least 1.

    Returns:
        rank -> its cells.

    Raises:
        InternalError: cells wait for each other in a circle.
    """
    return play_cells(after, seconds, windows, _at_once).order


def play_cells(
    after: Mapping[Cell, frozenset[Cell]],
    seconds: Mapping[Cell, float],
    windows: Mapping[int, int],
    deliver: Delivery,
) -> PlayedOrder:
    """Play a step in virtual time with messages that take time; otherwise as `order_cells`.

    Args:
        after: as there.
        seconds: as there.
        windows: as there.
        deliver: when another rank has what a cell made.
    """
    game = _VirtualStep(after, seconds, windows, deliver)
    game.play()
    if any(game.waiting.values()):
        raise InternalError(f"{sum(map(bool, game.waiting.values()))} cells wait for each other in a circle")
    return PlayedOrder({rank: tuple(state.order) for rank, state in game.ranks.items()}, game.ends_s)


def _at_once(_cell: Cell, _rank: int, now_s: float) -> float:
    return now_s


_Entry = tuple[bool, int, int, Cell]
"""Smallest first: backward before forward, older chunks first, and the order of segments within a chunk."""


@dataclass(slots=True)
class _Rank:
    """What one rank may do next."""

    window: int
    ready: list[_Entry] = field(default_factory=list)
    """Cells of chunks that are begun."""
    fresh: list[_Entry] = field(default_factory=list)
    """Ready cells of chunks that are not."""
    begun: set[int] = field(default_factory=set)
    """Chunks of which a cell has been computed and another is left."""
    left: Counter[int] = field(default_factory=Counter)
    """Cells left of each chunk."""
    unfinished: list[int] = field(default_factory=list)
    """Chunks of which cells are left, ascending."""
    order: list[Cell] = field(default_factory=list)
    is_busy: bool = False

    def push(self, cell: Cell) -> None:
        """Note a cell that waits for nothing more."""
        position = -cell.segment if cell.backward else cell.segment
        heap = self.ready if cell.chunk in self.begun else self.fresh
        heapq.heappush(heap, (not cell.backward, cell.chunk, position, cell))

    def take(self) -> Cell | None:
        """Take the best ready cell; one that begins a chunk only if there is room for it, or no older chunk."""
        if not (self.fresh and self._admits(self.fresh[0][1])):
            return heapq.heappop(self.ready)[3] if self.ready else None
        if self.ready and self.ready[0] < self.fresh[0]:
            return heapq.heappop(self.ready)[3]
        cell = heapq.heappop(self.fresh)[3]
        self.begun.add(cell.chunk)
        while self.fresh and self.fresh[0][1] == cell.chunk:
            heapq.heappush(self.ready, heapq.heappop(self.fresh))
        return cell

    def _admits(self, chunk: int) -> bool:
        return len(self.begun) < self.window or chunk == self.unfinished[0]

    def end(self, cell: Cell) -> None:
        """Note that a cell is done."""
        self.is_busy = False
        self.order.append(cell)
        self.left[cell.chunk] -= 1
        if not self.left[cell.chunk]:
            del self.unfinished[bisect_left(self.unfinished, cell.chunk)]
            self.begun.discard(cell.chunk)


class _VirtualStep:
    """One step in virtual time."""

    def __init__(
        self,
        after: Mapping[Cell, frozenset[Cell]],
        seconds: Mapping[Cell, float],
        windows: Mapping[int, int],
        deliver: Delivery,
    ) -> None:
        self.ranks = {rank: _Rank(windows[rank]) for rank in sorted({cell.rank for cell in after})}
        self.waiting = {cell: len(before) for cell, before in after.items()}
        self.ends_s: dict[Cell, float] = {}
        self._seconds, self._deliver = seconds, deliver
        self._dependents: dict[Cell, dict[int, list[Cell]]] = {}
        """By rank."""
        self._events: list[tuple[float, int, Cell, int]] = []
        """(when, number, cell, rank): a cell ends, or another rank gets what it made."""
        self._number = 0
        for cell, before in after.items():
            self.ranks[cell.rank].left[cell.chunk] += 1
            for earlier in before:
                self._dependents.setdefault(earlier, defaultdict(list))[cell.rank].append(cell)
        for state in self.ranks.values():
            state.unfinished = sorted(state.left)

    def play(self) -> None:
        """Compute cell after cell. What ends in the same instant ends before anything begins, so no tie is lost."""
        for cell, count in self.waiting.items():
            if count == 0:
                self.ranks[cell.rank].push(cell)
        self._start(set(self.ranks), 0.0)
        while self._events:
            now_s, touched = self._events[0][0], set[int]()
            while self._events and self._events[0][0] == now_s:
                _, _, cell, rank = heapq.heappop(self._events)
                if rank == cell.rank:
                    touched |= self._end(cell, now_s)
                else:
                    touched.add(self._arrive(cell, rank))
            self._start(touched, now_s)

    def _start(self, ranks: set[int], now_s: float) -> None:
        """Let free ranks take their next cell."""
        for rank in sorted(ranks):
            state = self.ranks[rank]
            cell = None if state.is_busy else state.take()
            if cell is not None:
                state.is_busy = True
                self._at(now_s + self._seconds[cell], cell, rank)

    def _end(self, cell: Cell, now_s: float) -> set[int]:
        """Note that a cell is done; return the ranks that may have something new to do."""
        self.ranks[cell.rank].end(cell)
        self.ends_s[cell] = now_s
        touched = {cell.rank}
        for rank in self._dependents.get(cell, ()):
            there_s = now_s if rank == cell.rank else self._deliver(cell, rank, now_s)
            if there_s > now_s:
                self._at(there_s, cell, rank)
            else:
                touched.add(self._arrive(cell, rank))
        return touched

    def _arrive(self, cell: Cell, rank: int) -> int:
        """Let the cells of a rank that waited for a cell wait for one less."""
        for dependent in self._dependents[cell][rank]:
            self.waiting[dependent] -= 1
            if self.waiting[dependent] == 0:
                self.ranks[rank].push(dependent)
        return rank

    def _at(self, time_s: float, cell: Cell, rank: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (time_s, self._number, cell, rank))
