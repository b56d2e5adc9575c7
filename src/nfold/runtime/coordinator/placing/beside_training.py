"""What moves while a generation trains, and how fast it may: at the rate that gradients leave idle. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nfold.core import codec
from nfold.core.cluster import Cluster
from nfold.core.job import Known
from nfold.core.plan import Plan
from nfold.core.residency import PlacedRun, SampleMove, Spans
from nfold.planning.residency.model.problem import links_of
from nfold.planning.residency.model.spans import union
from nfold.planning.residency.model.traffic import Traffic, traffic_kind
from nfold.runtime.control import commands as cmd

LEAST_IDLE = 0.05
"""Of a link: so much is used even where gradients would fill it, or data would never be there."""


def with_moves(
    orders: Sequence[cmd.Order], known: Known, chosen: Plan, placed: Sequence[PlacedRun], epoch: int
) -> list[cmd.Order]:
    """Return the orders to build with what moves while those ranks train.

    Args:
        orders: one for each rank.
        known: machines, links as they are now.
        chosen: the plan.
        placed: who trains on which samples; empty: all ranks read all.
        epoch: in which they begin.
    """
    if not placed:
        return list(orders)
    run = placed[-1]
    moves = [move for move in run.moves if move.epoch is not None and move.epoch >= epoch]
    more = {"moves": [codec.encode(move) for move in moves], "members": list(run.members)}
    rates = idle_rates(known, chosen, run.members, moves)
    found = []
    for rank, (order, rate) in enumerate(zip(orders, rates, strict=True)):
        uplink = known.cluster.node(chosen.nodes[rank]).uplink
        own = {
            "needed": needed_by(run, run.members[rank]),
            "move_bytes_per_s": rate,
            "link_bytes_per_s": None if uplink is None else uplink.bandwidth_bytes_per_s,
        }
        found.append(replace(order, message={**order.message, **more, **own}))
    return found


def needed_by(run: PlacedRun, member: int) -> Spans:
    """Return all samples that a member trains on in some epoch of a stretch, or sends to others, ascending."""
    sends = [span for move in run.moves if move.source == member for span in move.spans]
    if member not in run.members:
        return union(sends)
    rank = run.members.index(member)
    by_epoch = (epoch.by_rank[rank] for epoch in run.epochs)
    return union([*sends, *(span for samples in by_epoch for span in (*samples.own, *samples.arriving))])


def idle_rates(known: Known, chosen: Plan, members: Sequence[int], moves: Sequence[SampleMove]) -> list[float | None]:
    """Return how many bytes of samples each rank may send in a second; None: no link limits it.

    A link has what the plan's gradients leave of it, and those who send to one node share what its downlink has.

    Args:
        known: machines, links as they are now.
        chosen: the plan.
        members: by rank.
        moves: that go on beside training.
    """
    nodes = [known.cluster.node(name) for name in chosen.nodes]
    if len(nodes) == 1:
        return [None]
    links = links_of(Cluster(nodes=tuple(nodes)))
    traffic = Traffic(kind=traffic_kind(chosen.strategy), gradient_bytes=known.graph.parameter_bytes)
    busy = traffic.link_bytes(links, np.ones(len(nodes), dtype=np.bool_)) / chosen.predicted.step_s
    up, down = (np.maximum(LEAST_IDLE * each, each - busy) for each in (links.up, links.down))
    ranks = {member: rank for rank, member in enumerate(members)}
    pairs = {(ranks[move.source], ranks[move.target]) for move in moves}
    num_sources = Counter(target for _, target in pairs)
    rates: list[float | None] = []
    for rank, node in enumerate(nodes):
        targets = [target for source, target in pairs if source == rank]
        taken = sum(float(down[target]) / num_sources[target] for target in targets)
        is_limited = node.uplink is not None or any(nodes[target].downlink is not None for target in targets)
        rates.append(min(float(up[rank]), taken or float(up[rank])) if is_limited else None)
    return rates
