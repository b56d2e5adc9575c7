"""Who sends how many samples to whom: few transfers, near ones first; and which samples these are."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from nfold.core.residency import Holding, Residency, Spans, Transfer
from nfold.errors import ClusterError
from nfold.planning.residency.model.boxes import Array
from nfold.planning.residency.model.spans import cut_last


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


def residency_after(residency: Residency, transfers: Sequence[Transfer]) -> Residency:
    """Return where all samples live when transfers are done. What is pinned stays, with the node that it is pinned to.

    Raises:
        ClusterError: a node would send more than may leave.
    """
    spans, sent = moved_spans(residency, transfers)
    change: dict[str, int] = defaultdict(int)
    for transfer, moved in zip(transfers, sent, strict=True):
        change[transfer.source] -= transfer.num_samples
        change[transfer.target] += transfer.num_samples
        spans[transfer.target] += moved
    holdings = (_changed(each, change[each.node], spans[each.node]) for each in residency.holdings)
    return replace(residency, holdings=tuple(holdings))


def moved_spans(residency: Residency, transfers: Sequence[Transfer]) -> tuple[dict[str, Spans], tuple[Spans, ...]]:
    """Return which samples stay on each node, and which each transfer moves: the last of its source's list first.

    So the first of a list are those that are pinned. Empty where nobody knows which samples a node holds.

    Args:
        residency: before.
        transfers: in their order.

    Raises:
        ClusterError: a node would send more than may leave.
    """
    left = {holding.node: holding.num_samples - holding.num_pinned for holding in residency.holdings}
    spans = {holding.node: holding.spans for holding in residency.holdings}
    sent = []
    for transfer in transfers:
        left[transfer.source] -= transfer.num_samples
        if left[transfer.source] < 0:
            raise ClusterError(f"{transfer.source} would send {-left[transfer.source]} samples more than may leave it.")
        spans[transfer.source], moved = cut_last(spans[transfer.source], transfer.num_samples)
        sent.append(moved)
    return spans, tuple(sent)


def _changed(holding: Holding, change: int, spans: Spans) -> Holding:
    return replace(holding, num_samples=holding.num_samples + change, spans=spans)
