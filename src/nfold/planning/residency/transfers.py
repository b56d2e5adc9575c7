"""Who sends how many samples to whom: few transfers, near ones first."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from nfold.planning.residency.boxes import Array


class Flow(NamedTuple):
    """Samples from one node to another, by the nodes' indices."""

    source: int
    target: int
    num_samples: int


def flows(held: Array, holds: Array, sites: Sequence[str]) -> list[Flow]:
    """Return what must move, so that each node holds what it shall.

    Within a site first: as much stays near as can. There are fewer flows than senders and receivers together, since
    each of them ends what one of its nodes has to send or to receive.

    Args:
        held: whole samples of n nodes now, of shape (n,).
        holds: what they shall hold, with the same sum.
        sites: of the nodes; empty: near to none.
    """
    change = (holds - held).round().astype(int)
    near: dict[str, list[int]] = defaultdict(list)
    for node in map(int, change.nonzero()[0]):
        if sites[node]:
            near[sites[node]].append(node)
    found = [flow for nodes in near.values() for flow in _matched(nodes, change)]
    return [*found, *_matched(list(map(int, change.nonzero()[0])), change)]


def _matched(nodes: Sequence[int], change: "Array") -> Iterator[Flow]:
    """Match the largest sender with the largest receiver, again and again; what is matched is taken off `change`."""
    sends = [(int(change[node]), node) for node in nodes if change[node] < 0]
    takes = [(-int(change[node]), node) for node in nodes if change[node] > 0]
    heapify(sends)
    heapify(takes)
    while sends and takes:
        (sent, source), (taken, target) = heappop(sends), heappop(takes)
        moved = min(-sent, -taken)
        change[source] += moved
        change[target] -= moved
        yield Flow(source, target, moved)
        if sent + moved:
            heappush(sends, (sent + moved, source))
        if taken + moved:
            heappush(takes, (taken + moved, target))
