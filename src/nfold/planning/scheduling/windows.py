"""How many chunks each rank may have begun and not finished: enough to be busy, no more than memory was planned for.

A chunk that a rank has begun comes back to it when all ranks behind it have had it, so it needs one for each of those
and one for itself. On stage s of a pipeline of p that is p - s, the window of 1F1B; where a rank computes whole chunks
it is 1. Messages take their time as well: each one on the way counts like a rank.

    0 ── 1 ── 2 ── 3        ranks behind and itself    4  3  2  1
                            with messages              7  5  3  1

What the searches for a division count on, and what a plan falls back to where memory is short, is the upper row: a rank
that may begin fewer chunks computes the same, and waits longer for messages.
"""

import itertools
from collections.abc import Iterator

from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement


def busy_windows(graph: ModelGraph, placement: Placement) -> dict[int, int]:
    """Map each rank to the most chunks that it may have begun and not finished. O(operators x chunks)."""
    found = dict.fromkeys(range(placement.world_size), 1)
    for column in set(zip(*(placement.owners[operator.name] for operator in graph.operators), strict=True)):
        behind: set[int] = set()
        for rank, _ in itertools.groupby(reversed(column)):
            behind.add(rank)
            found[rank] = max(found[rank], busy_window(len(behind)))
    return found


def busy_window(num_ranks: int) -> int:
    """Return how many unfinished chunks keep a rank busy.

    Args:
        num_ranks: itself and the ranks that compute after it.
    """
    return 2 * num_ranks - 1


def lean_window(num_ranks: int) -> int:
    """Return how many it needs if messages take no time, as in 1F1B. A plan short of memory tries this one first."""
    return halved(busy_window(num_ranks))


def halved(window: int) -> int:
    """Return half a window, rounded up, at least 1 chunk."""
    return (window + 1) // 2


def window_notes(windows: tuple[int, ...]) -> tuple[str, ...]:
    """Return a note that memory keeps ranks from being busy; none for the usual windows, which are written as ()."""
    if not windows:
        return ()
    return (
        f"a rank has at most {max(windows)} unfinished {'chunk' if max(windows) == 1 else 'chunks'} at a time, fewer "
        "than would keep it busy, since what is kept of more does not fit the memory",
    )


def narrower(windows: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the windows of all ranks halved again and again, until every rank has one unfinished chunk at a time."""
    while max(windows) > 1:
        windows = tuple(map(halved, windows))
        yield windows
