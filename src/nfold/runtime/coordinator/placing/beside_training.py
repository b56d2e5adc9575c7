"""What moves while a generation trains, and how fast it may while gradients leave links idle. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from nfold.core import codec
from nfold.core.cluster import Cluster
from nfold.core.job import Known
from nfold.core.plan import Plan
from nfold.core.residency import PlacedData, PlacedRun, SampleMove, Spans
from nfold.planning.residency.model.pieces import LINK_SHARE, piece_bytes_on
from nfold.planning.residency.model.problem import links_of
from nfold.planning.residency.model.spans import union
from nfold.planning.residency.model.traffic import Links, Traffic, traffic_kind
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.placing.residing import brought_order
from nfold.runtime.measuring.unsent_bytes import unsent_bytes

QUIET_MESSAGES = 1.5
"""An exchange in which a rank hears nothing for as long as so many messages take stands still."""
LEAST_QUIET_S = 0.02
"""Threads wake late, and links are not as quick as they were."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How one rank sends samples beside steps; a part of its order to build."""

    move_bytes_per_s: float | None
    """While it may; None: no link limits it."""
    link_bytes_per_s: float | None
    """Of its own link, by which pieces are cut."""
    ahead_bytes: int
    """That may leave before their time, so that the link is busy until a thread is awake."""
    quiet_s: float
    """After which an exchange of gradients stands still; see `Gate`."""
    settle_s: float
    """For which gradients that have left this process may still use its link."""


def with_moves(
    orders: Sequence[cmd.Order], known: Known, chosen: Plan, data: PlacedData | None, epoch: int
) -> list[cmd.Order]:
    """Return the orders to build with what moves while those ranks train.

    Args:
        orders: one for each rank.
        known: machines, links as they are now.
        chosen: the plan.
        data: who trains on which samples; None: all ranks read all.
        epoch: in which they begin.
    """
    if data is None:
        return list(orders)
    run = data.runs[-1]
    moves = [move for move in run.moves if move.epoch is not None and move.epoch >= epoch]
    more = {"moves": [codec.encode(move) for move in moves], "members": list(run.members)}
    more |= brought_order(data.members)
    found = []
    for rank, (order, pace) in enumerate(zip(orders, paces(known, chosen, run.members, moves), strict=True)):
        own = {"needed": needed_by(run, run.members[rank]), **asdict(pace)}
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


def paces(known: Known, chosen: Plan, members: Sequence[int], moves: Sequence[SampleMove]) -> list[Pace]:
    """Return how fast samples of each rank may leave while no gradients travel.

    A link is not given all that it carries, since headers travel, too: what was handed over has then gone when its time
    is over. Those who send to one node share its downlink.

    Args:
        known: machines, links as they are now.
        chosen: the plan.
        members: by rank.
        moves: that go on beside training.
    """
    nodes = [known.cluster.node(name) for name in chosen.nodes]
    links = links_of(Cluster(nodes=tuple(nodes)))
    ranks = {member: rank for rank, member in enumerate(members)}
    pairs = {(ranks[move.source], ranks[move.target]) for move in moves}
    num_sources = Counter(target for _, target in pairs)
    handed = unsent_bytes(known.cluster, chosen.nodes)
    settles_s = [0.0 if each is None else each / float(up) for each, up in zip(handed, links.up, strict=True)]
    quiet_s = QUIET_MESSAGES * _message_s(known, chosen, links) + max(settles_s) + LEAST_QUIET_S
    found: list[Pace] = []
    for rank, node in enumerate(nodes):
        targets = [target for source, target in pairs if source == rank]
        taken = sum(float(links.down[target]) / num_sources[target] for target in targets)
        is_limited = node.uplink is not None or any(nodes[target].downlink is not None for target in targets)
        link = None if node.uplink is None else node.uplink.bandwidth_bytes_per_s
        found.append(
            Pace(
                move_bytes_per_s=LINK_SHARE * min(float(links.up[rank]), taken or np.inf) if is_limited else None,
                link_bytes_per_s=link,
                ahead_bytes=max(0, (handed[rank] or 0) - piece_bytes_on(link)),
                quiet_s=quiet_s,
                settle_s=settles_s[rank],
            )
        )
    return found


def _message_s(known: Known, chosen: Plan, links: Links) -> float:
    """Return how long a message of a step takes at most, while all exchange gradients."""
    traffic = Traffic(kind=traffic_kind(chosen.strategy), gradient_bytes=known.graph.parameter_bytes)
    count = len(chosen.nodes)
    return traffic.sync_s(links, np.ones(count, dtype=np.bool_)) / traffic.num_waits(count) if count > 1 else 0.0
