"""One question of where data should live: the nodes, what a program asks of them, and for how long."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.residency import Holding, Residency
from nfold.core.text.quantities import FASTEST_BYTES_PER_S
from nfold.core.text.units import count, percent, size
from nfold.core.text.units import seconds as seconds_text
from nfold.errors import ClusterError
from nfold.planning.residency.model.boxes import Array, Boxes, Mask, least_compute_s
from nfold.planning.residency.model.traffic import Links, Traffic

MOST_EPOCH_S = 30 * 86400.0
"""An epoch that pinned data alone make longer than that is refused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """What training asks of the nodes."""

    epochs: int
    batch_size: int
    traffic: Traffic
    most_batch: int | None = None
    """The largest batch that is allowed; None: only the one that was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Handling:
    """Seconds that one sample which moves keeps a node's processor busy."""

    send_s: float = 0.0
    take_s: float = 0.0
    """Where it comes to."""
    read_s: float = 0.0
    """There in each epoch, beyond what reading takes of those that were there."""


UNHANDLED = Handling()


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Arrays have the shape (n,), in the order of the nodes."""

    residency: Residency
    sites: tuple[str, ...]
    boxes: Boxes
    links: Links
    update_s: Array
    """Seconds of one optimizer step on each, and of what else a step costs, however few its samples are."""
    come_s: Array
    """Seconds of each epoch by which a sample that has come to each is slower than one that was there."""
    demand: Demand

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the nodes."""
        return tuple(holding.node for holding in self.residency.holdings)

    @property
    def can_compute(self) -> Mask:
        """Return which nodes are not excluded."""
        return self.boxes.rate > 0

    def with_demand(self, **changes: Any) -> Self:
        """Return the same nodes with other fields of the demand."""
        return replace(self, demand=replace(self.demand, **changes))

    def step_s(self, members: Mask) -> float:
        """Return the seconds of a step beside computing: gradients travel, weights are updated."""
        return self.demand.traffic.sync_s(self.links, members) + float(self.update_s[members].max(initial=0.0))

    def sync_s(self, members: Mask) -> float:
        """Return the same of an epoch."""
        steps = np.ceil(self.boxes.total / self.demand.batch_size)
        return float(steps) * self.step_s(members)


def problem_of(
    cluster: Cluster,
    demand: Demand,
    *,
    rates: Mapping[str, float],
    update_s: Mapping[str, float] | None = None,
    handling: Mapping[str, Handling] | None = None,
    excluded: Collection[str] = (),
) -> Problem:
    """Return the question that a cluster asks.

    Args:
        cluster: whose nodes say how many samples live there.
        demand: of the program.
        rates: samples that a node trains on in a second, of those that do not say it themselves.
        update_s: seconds of one optimizer step; 0 unless given.
        handling: what moving costs nodes; nothing unless given.
        excluded: nodes that shall compute nothing and hold nothing.

    Raises:
        ClusterError: something is missing, or cannot be: it names the node.
    """
    for name in excluded:
        cluster.node(name)
    residency = residency_of(cluster)
    rate = [0.0 if node.name in excluded else _rate(node, rates) for node in cluster.nodes]
    links = links_of(cluster)
    costs = [(handling or {}).get(node.name, UNHANDLED) for node in cluster.nodes]
    updates_s = [(update_s or {}).get(node.name, 0.0) for node in cluster.nodes]
    problem = Problem(
        residency=residency,
        sites=tuple(node.site for node in cluster.nodes),
        boxes=boxes_of(residency, np.array(rate), links, costs),
        links=links,
        update_s=np.array(updates_s),
        come_s=np.array([each.read_s for each in costs]),
        demand=demand,
    )
    check(problem)
    return problem


def residency_of(cluster: Cluster) -> Residency:
    """Return what lives on the nodes of a cluster.

    Raises:
        ClusterError: no node says it, or nodes do not agree on the size of a sample.
    """
    if not any(node.num_samples for node in cluster.nodes):
        raise ClusterError("no node holds samples. Say how many live where: `samples = 12000` for a [[node]].")
    sizes = _sizes([node for node in cluster.nodes if node.num_samples])
    return Residency(holdings=tuple(_holding(node, sizes) for node in cluster.nodes), sample_bytes=sizes)


def boxes_of(residency: Residency, rate: Array, links: Links, costs: Sequence[Handling]) -> Boxes:
    """Return the limits of nodes, in samples. A link carries no more than the processor at its end can handle.

    Args:
        residency: of n nodes.
        rate: samples that each trains on in a second, of shape (n,).
        links: of the nodes.
        costs: of each node.
    """
    holdings = residency.holdings
    most = [np.inf if holding.most_samples is None else holding.most_samples for holding in holdings]
    return Boxes(
        held=np.array([holding.num_samples for holding in holdings], dtype=float),
        least=np.array([holding.num_pinned for holding in holdings], dtype=float),
        most=np.array(most, dtype=float),
        rate=rate,
        up=1 / np.maximum(residency.sample_bytes / links.up, [each.send_s for each in costs]),
        down=1 / np.maximum(residency.sample_bytes / links.down, [each.take_s for each in costs]),
    )


def links_of(cluster: Cluster) -> Links:
    """Return the links of a cluster; one that nobody limits is as fast as any link can be."""
    return Links(
        up=np.array([_bytes_per_s(node.uplink) for node in cluster.nodes]),
        down=np.array([_bytes_per_s(node.downlink) for node in cluster.nodes]),
        latency_s=np.array([node.uplink.latency_s if node.uplink else 0.0 for node in cluster.nodes]),
        message_s=np.array([node.slowdown(1) * _end_s(node.uplink, 0.0, 1) for node in cluster.nodes]),
        byte_s=np.array([node.slowdown(1) * _end_s(node.uplink, 1.0, 0) for node in cluster.nodes]),
    )


def check(problem: Problem) -> None:
    """Refuse what no plan can do.

    Raises:
        ClusterError: it names the node, with the numbers.
    """
    boxes, holdings = problem.boxes, problem.residency.holdings
    for name, up, down in zip(problem.names, boxes.up, boxes.down, strict=True):
        if not (up > 0 and down > 0):
            raise ClusterError(f"{name} has a link of no bandwidth: nothing can leave it or reach it. Exclude it.")
    if not problem.can_compute.any():
        raise ClusterError("all nodes are excluded, so nobody would compute. Keep at least one.")
    for holding, rate in zip(holdings, boxes.rate, strict=True):
        if holding.num_pinned and rate == 0:
            raise ClusterError(
                f"{holding.node} is excluded and pins {count(holding.num_pinned, 'sample')}: they can neither leave "
                "nor be trained on. Let it compute, or let them leave."
            )
    _check_room(problem)
    _check_pins(problem)


def _check_room(problem: Problem) -> None:
    room = float(problem.boxes.most[problem.can_compute].sum())
    total, each = problem.residency.num_samples, problem.residency.sample_bytes
    if room < total:
        raise ClusterError(
            f"the nodes that compute have storage for {int(room)} samples ({size(room * each)}), and there are {total} "
            f"({size(total * each)}). Exclude fewer nodes, or give them more storage."
        )


def _check_pins(problem: Problem) -> None:
    """Refuse pinned data with which an epoch would never end in reason; a pipeline's all nodes train on them."""
    boxes = problem.boxes
    pinned = np.flatnonzero(boxes.least > 0)
    if not len(pinned) or problem.demand.traffic.kind == "pipeline":
        return
    worst = pinned[int((boxes.least[pinned] / boxes.rate[pinned]).argmax())]
    needs_s = float(boxes.least[worst] / boxes.rate[worst])
    if needs_s <= MOST_EPOCH_S:
        return
    free_s = least_compute_s(boxes.unpinned())
    raise ClusterError(
        f"{problem.names[worst]} pins {count(int(boxes.least[worst]), 'sample')} and trains on "
        f"{boxes.rate[worst]:.3g} in a second: an epoch takes {needs_s / 86400:.0f} days, and {seconds_text(free_s)} "
        f"without that ({percent(free_s / needs_s)}). Pin fewer."
    )


def _holding(node: Node, sample_bytes: float) -> Holding:
    return Holding(
        node=node.name,
        num_samples=node.num_samples or 0,
        num_pinned=node.num_pinned,
        most_samples=None if node.storage_bytes is None else int(node.storage_bytes // sample_bytes),
    )


def _sizes(holders: Sequence[Node]) -> float:
    """Return the size of a sample, that all nodes agree on."""
    silent = [node.name for node in holders if node.sample_bytes is None]
    if silent:
        raise ClusterError(f"{silent[0]} holds samples and does not say how large they are. Add sample_bytes.")
    sizes = {node.sample_bytes or 0: node for node in holders}
    if len(sizes) > 1:
        (one, first), (other, second) = list(sizes.items())[:2]
        total = sum(node.num_samples or 0 for node in holders)
        mean = sum((node.num_samples or 0) * (node.sample_bytes or 0) for node in holders) / total
        raise ClusterError(
            f"samples of {first.name} have {one} bytes and those of {second.name} {other}: the model knows one size. "
            f"Give all nodes the mean, {round(mean)} bytes."
        )
    return float(next(iter(sizes)))


def _rate(node: Node, rates: Mapping[str, float]) -> float:
    if node.samples_per_s is not None:
        return node.samples_per_s
    if node.name not in rates:
        raise ClusterError(
            f"nobody knows how fast {node.name} trains. Add samples_per_s to its [[node]], or give --program."
        )
    return rates[node.name]


def _end_s(channel: Channel | None, num_bytes: float, num_messages: float) -> float:
    return channel.end_s(num_bytes, num_messages) if channel else 0.0


def _bytes_per_s(channel: Channel | None) -> float:
    return FASTEST_BYTES_PER_S if channel is None else channel.bandwidth_bytes_per_s
