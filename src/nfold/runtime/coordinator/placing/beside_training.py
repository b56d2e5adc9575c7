"""What moves while a generation trains, and how fast it may: at the rate that gradients leave idle. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from nfold.core import codec
from nfold.core.job import Known
from nfold.core.plan import Plan
from nfold.core.residency import PlacedRun, Spans
from nfold.planning.residency.model.spans import union
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
    moves = [codec.encode(move) for move in run.moves if move.epoch is not None and move.epoch >= epoch]
    more = {"moves": moves, "members": list(run.members)}
    return [
        replace(
            order, message={**order.message, **more, **_rates(known, chosen, rank), "needed": needed_by(run, member)}
        )
        for rank, (order, member) in enumerate(zip(orders, run.members, strict=True))
    ]


def _rates(known: Known, chosen: Plan, rank: int) -> dict[str, float | None]:
    uplink = known.cluster.node(chosen.nodes[rank]).uplink
    link = None if uplink is None else uplink.bandwidth_bytes_per_s
    return {"move_bytes_per_s": idle_bytes_per_s(known, chosen, rank), "link_bytes_per_s": link}


def needed_by(run: PlacedRun, member: int) -> Spans:
    """Return all samples that a member trains on in some epoch of a stretch, or sends to others, ascending."""
    sends = [span for move in run.moves if move.source == member for span in move.spans]
    if member not in run.members:
        return union(sends)
    rank = run.members.index(member)
    by_epoch = (epoch.by_rank[rank] for epoch in run.epochs)
    return union([*sends, *(span for samples in by_epoch for span in (*samples.own, *samples.arriving))])


def idle_bytes_per_s(known: Known, chosen: Plan, rank: int) -> float | None:
    """Return how fast a rank may send samples; None: its link is not limited.

    A ring passes 2 (N - 1) / N of the gradient's bytes through each link in a step.
    """
    uplink = known.cluster.node(chosen.nodes[rank]).uplink
    if uplink is None or chosen.world_size == 1:
        return None
    count, step_s = chosen.world_size, chosen.predicted.step_s
    busy_bytes_per_s = 2 * (count - 1) / count * known.graph.parameter_bytes / step_s
    link = uplink.bandwidth_bytes_per_s
    return max(LEAST_IDLE * link, link - busy_bytes_per_s)
