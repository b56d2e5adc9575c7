"""How full each node is: its memory against its limit, its network against its links."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from nfold.analysis.measured.link_regime import since_change
from nfold.analysis.measured.node_loads import framing, node_resident_bytes
from nfold.core.cluster import Channel, Cluster
from nfold.core.text.units import link_rate, size
from nfold.core.trace import Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class FillMeter:
    """A part of a whole, with words for both."""

    what: str
    """`memory, peak`, `uplink`."""
    share: float
    """Of the whole, from 0."""
    words: str
    """The part and the whole, with units."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeMeters:
    """The meters of one node."""

    node: str
    ranks: tuple[int, ...]
    meters: tuple[FillMeter, ...]


def node_meters(trace: Trace, cluster: Cluster, nodes: Sequence[str], shown: Sequence[str]) -> tuple[NodeMeters, ...]:
    """Return the meters of some nodes in use.

    Args:
        trace: of the run.
        cluster: limits and links.
        nodes: node of each rank.
        shown: the nodes whose meters are wanted.
    """
    trace = since_change(trace)  # the links' limits are those of the end
    return tuple(
        NodeMeters(
            node=name,
            ranks=tuple(rank for rank, at in enumerate(nodes) if at == name),
            meters=(_memory(trace, cluster, name), *_network(trace, cluster, name, nodes)),
        )
        for name in shown
    )


def _memory(trace: Trace, cluster: Cluster, name: str) -> FillMeter:
    used = node_resident_bytes(trace).get(name, 0)
    node = cluster.node(name)
    if not node.limits_memory:
        return FillMeter(what="memory, peak", share=0.0, words=f"{size(used)}, not limited")
    share = used / node.memory_bytes if node.memory_bytes else 0.0
    return FillMeter(what="memory, peak", share=share, words=f"{size(used)} of {size(node.memory_bytes)}")


def _network(trace: Trace, cluster: Cluster, name: str, nodes: Sequence[str]) -> Iterator[FillMeter]:
    node = cluster.node(name)
    if len(nodes) == 1:
        return
    sent, received = _rates(trace, name)
    on_wire = framing(trace)
    if sent is None or received is None:
        sent, on_wire = _payload_rate(trace, nodes, name), 1.0
    if node.uplink is None or node.downlink is None or set(nodes) == {name}:
        yield _link("loopback", sent, node.local, on_wire)
        return
    yield _link("uplink", sent, node.uplink, on_wire)
    if received is not None:
        yield _link("downlink", received, node.downlink, on_wire)


def _link(what: str, bytes_per_s: float, channel: Channel, on_wire: float) -> FillMeter:
    """Compare like with like: interfaces count headers, and so does who declares a link; probes count payload."""
    capacity = channel.bandwidth_bytes_per_s * (on_wire if channel.origin == "measured" else 1.0)
    words = f"{link_rate(bytes_per_s)} of {link_rate(capacity)} ({channel.origin})"
    return FillMeter(what=f"{what}, mean", share=bytes_per_s / capacity, words=words)


def _rates(trace: Trace, name: str) -> tuple[float | None, float | None]:
    """Return what the node's interface sent and received a second, headers included, as one rank there sampled it."""
    ranks = {sample.rank for sample in trace.samples if sample.node == name}
    samples = [sample for sample in trace.samples if sample.node == name and sample.rank == min(ranks)]
    span_s = sum(sample.span_s for sample in samples)
    if not span_s:
        return None, None
    return (
        sum(sample.sent_bytes for sample in samples) / span_s,
        sum(sample.received_bytes for sample in samples) / span_s,
    )


def _payload_rate(trace: Trace, nodes: Sequence[str], name: str) -> float:
    """Return the payload that the node's ranks sent a second: what is known where no interface was sampled."""
    per_rank = {
        rank: [parts.sent_bytes / parts.step_s for parts in trace.parts if parts.rank == rank and parts.step_s > 0]
        for rank, at in enumerate(nodes)
        if at == name
    }
    return sum(fmean(rates) for rates in per_rank.values() if rates)
