"""Puts each rank's compute tasks into one order, fixed before the run.

A list schedule in virtual time: a free rank takes ready backward work before new forward work, older chunks first, and
starts forwards only for the k oldest chunks that it has not finished, so that kept activations are bounded. The oldest
chunk is always admitted everywhere, so the order cannot deadlock. Fixed orders make sums, and so runs, repeatable.
"""

import heapq
from collections import defaultdict
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


@dataclass(slots=True)
class _Rank:
    ready: list[tuple[bool, int, int, Cell]] = field(default_factory=list)
    unfinished: dict[int, int] = field(default_factory=dict)
    order: list[Cell] = field(default_factory=list)


def order_cells(
    after: Mapping[Cell, frozenset[Cell]], seconds: Mapping[Cell, float], max_chunks: int
) -> dict[int, tuple[Cell, ...]]:
    """Return each rank's cells in the order in which it will compute them.

    Args:
        after: for each cell the cells, of any rank, that must be done first.
        seconds: estimated duration of each cell.
        max_chunks: how many unfinished chunks a rank may have begun.

    Returns:
        rank -> cells; O(cells log cells).
    """
    ranks: dict[int, _Rank] = defaultdict(_Rank)
    waiting = {cell: len(before) for cell, before in after.items()}
    dependents: dict[Cell, list[Cell]] = defaultdict(list)
    for cell, before in after.items():
        ranks[cell.rank].unfinished[cell.chunk] = ranks[cell.rank].unfinished.get(cell.chunk, 0) + 1
        for earlier in before:
            dependents[earlier].append(cell)
    for cell, count in waiting.items():
        if count == 0:
            _push(ranks[cell.rank], cell)

    events: list[tuple[float, int, Cell]] = []
    running: set[int] = set()
    sequence = 0

    def start(rank: int, now_s: float) -> None:
        nonlocal sequence
        cell = None if rank in running else _take(ranks[rank], max_chunks)
        if cell is not None:
            running.add(rank)
            sequence += 1
            heapq.heappush(events, (now_s + seconds[cell], sequence, cell))

    for rank in sorted(ranks):
        start(rank, 0.0)
    while events:
        now_s, _, cell = heapq.heappop(events)
        running.discard(cell.rank)
        ranks[cell.rank].order.append(cell)
        ranks[cell.rank].unfinished[cell.chunk] -= 1
        for dependent in dependents[cell]:
            waiting[dependent] -= 1
            if waiting[dependent] == 0:
                _push(ranks[dependent.rank], dependent)
        for rank in sorted({cell.rank, *(dependent.rank for dependent in dependents[cell])}):
            start(rank, now_s)
    if any(waiting.values()):
        raise InternalError(f"{sum(map(bool, waiting.values()))} cells wait for each other in a circle")
    return {rank: tuple(state.order) for rank, state in ranks.items()}


def _push(rank: _Rank, cell: Cell) -> None:
    position = -cell.segment if cell.backward else cell.segment
    heapq.heappush(rank.ready, (not cell.backward, cell.chunk, position, cell))


def _take(rank: _Rank, max_chunks: int) -> Cell | None:
    """Take the best ready cell whose chunk is admitted; chunks are few, so the skipped ones are put back."""
    admitted = sorted(chunk for chunk, left in rank.unfinished.items() if left)[:max_chunks]
    skipped, found = [], None
    while rank.ready:
        entry = heapq.heappop(rank.ready)
        if entry[3].backward or entry[3].chunk in admitted:
            found = entry[3]
            break
        skipped.append(entry)
    for entry in skipped:
        heapq.heappush(rank.ready, entry)
    return found
