"""How many chunks each rank may have begun and not finished: enough to be busy, no more than memory was planned for.

A chunk that a rank has begun comes back to it when all ranks behind it have had it, so it needs one for each of those
and one for itself. On stage s of a pipeline of p that is p - s, the window of 1F1B; where a rank computes whole chunks
it is 1. Messages take their time as well: each one on the way counts like a rank.

    0 ── 1 ── 2 ── 3        ranks behind and itself    4  3  2  1
                            with messages              7  5  3  1
"""

import itertools

from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement


def busy_windows(graph: ModelGraph, placement: Placement) -> dict[int, int]:
    """Return for each rank how many unfinished chunks it may have begun. O(operators x chunks)."""
    found = dict.fromkeys(range(placement.world_size), 1)
    for column in set(zip(*(placement.owners[operator.name] for operator in graph.operators), strict=True)):
        behind: set[int] = set()
        for rank, _ in itertools.groupby(reversed(column)):
            behind.add(rank)
            found[rank] = max(found[rank], 2 * len(behind) - 1)
    return found
