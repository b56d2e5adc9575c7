"""Message spans -> how long the network was in use, what each channel achieved, and the bus bandwidth."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from nfold.core.cluster import Channel, Cluster
from nfold.core.plan import Plan
from nfold.core.trace import Span, StepTrace, Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelUse:
    """What one channel did in a mean step."""

    place: str
    channel: Channel
    bytes_per_step: float
    in_use_s: float
    num_messages: float
    """Per step, on the rank with most of them (they follow each other)."""

    @property
    def achieved_bytes_per_s(self) -> float:
        """Bytes over the time in which there was anything to move."""
        return self.bytes_per_step / self.in_use_s if self.in_use_s > 0 else 0.0

    @property
    def utilisation(self) -> float:
        """Achieved over measured or declared bandwidth."""
        return self.achieved_bytes_per_s / self.channel.bandwidth_bytes_per_s

    @property
    def latency_s(self) -> float:
        """Fixed costs of a step's messages, one after another."""
        return self.num_messages * self.channel.latency_s


def channel_uses(plan: Plan, trace: Trace, cluster: Cluster) -> tuple[ChannelUse, ...]:
    """Return every channel that moved bytes, the fullest first; empty when no step was traced task by task."""
    per_step = [use for step in trace.steps for use in _uses_of_step(step, plan, cluster)]
    means = [_mean([use for use in per_step if use.place == place]) for place in {use.place: None for use in per_step}]
    return tuple(sorted(means, key=lambda use: -use.utilisation))


def bus_bandwidth_bytes_per_s(plan: Plan, trace: Trace, cluster: Cluster) -> float | None:
    """Return bytes that each worker must send for the reductions over the time that its network was in use.

    A sum over n members needs 2(n-1)/n of the bucket from each of them, whatever the route (Patarasuk and Yuan 2009),
    so ring and server compare. None on one rank, or when no step was traced task by task.
    """
    rates = []
    for step in trace.steps:
        for rank in range(plan.workers):
            in_use_s = network_in_use_s(step, rank, plan, cluster)
            if in_use_s > 0:
                rates.append(_must_send_bytes(plan, rank) / in_use_s)
    return fmean(rates) if rates and max(rates) > 0 else None


def network_in_use_s(step: StepTrace, rank: int, plan: Plan, cluster: Cluster) -> float:
    """Return the seconds in which a rank had bytes to send or bytes coming.

    A receive may be posted long before its bytes exist, so nothing counts before the rank's first send could start or
    its first arrival can have left the peer.
    """
    spans = [span for span in step.spans if span.rank == rank and span.kind in ("SEND", "RECV")]
    sends = [span.start_s for span in spans if span.kind == "SEND"]
    arrivals = [_earliest_start_s(span, plan, cluster) for span in spans if span.kind == "RECV"]
    begin_s = min([*sends, *arrivals], default=0.0)
    return _union_s((max(begin_s, span.start_s), span.end_s) for span in spans)


def _uses_of_step(step: StepTrace, plan: Plan, cluster: Cluster) -> list[ChannelUse]:
    """One use per node and direction; ranks of a node share its uplink and downlink but not its local channel."""
    groups: dict[tuple[str, Channel], list[Span]] = {}
    for span in step.spans:
        for key in _crossed(span, plan, cluster):
            groups.setdefault(key, []).append(span)
    in_use = {rank: network_in_use_s(step, rank, plan, cluster) for rank in {span.rank for span in step.spans}}
    return [_use(place, channel, spans, in_use) for (place, channel), spans in groups.items()]


def _use(place: str, channel: Channel, spans: list[Span], in_use_s: dict[int, float]) -> ChannelUse:
    ranks = {span.rank for span in spans}
    if place.endswith("loopback"):
        pairs = {(span.rank, span.peer): 0 for span in spans}
        for span in spans:
            pairs[span.rank, span.peer] += span.payload_bytes
        busiest = max(pairs, key=lambda pair: pairs[pair])
        num_bytes, seconds = pairs[busiest], in_use_s[busiest[0]]
    else:
        num_bytes, seconds = sum(span.payload_bytes for span in spans), max(in_use_s[rank] for rank in ranks)
    num_messages = max(sum(span.rank == rank for span in spans) for rank in ranks)
    return ChannelUse(
        place=place, channel=channel, bytes_per_step=num_bytes, in_use_s=seconds, num_messages=num_messages
    )


def _crossed(span: Span, plan: Plan, cluster: Cluster) -> list[tuple[str, Channel]]:
    """The channel that a rank's own end of a message crosses."""
    if span.kind not in ("SEND", "RECV"):
        return []
    node, peer = cluster.node(plan.nodes[span.rank]), plan.nodes[span.peer]
    if node.name == peer:
        return [(f"{node.name}'s loopback", node.local)] if span.kind == "SEND" else []
    side, channel = ("uplink", node.uplink) if span.kind == "SEND" else ("downlink", node.downlink)
    return [(f"{node.name}'s {side}", channel)] if channel else []


def _earliest_start_s(span: Span, plan: Plan, cluster: Cluster) -> float:
    """A message of an idle network that came at `end_s` had left the peer by then."""
    node, peer = cluster.node(plan.nodes[span.rank]), plan.nodes[span.peer]
    channel = node.local if node.name == peer else node.downlink
    alone_s = channel.seconds(span.payload_bytes) if channel else 0.0
    return max(span.start_s, span.end_s - alone_s)


def _mean(uses: list[ChannelUse]) -> ChannelUse:
    return ChannelUse(
        place=uses[0].place,
        channel=uses[0].channel,
        bytes_per_step=fmean(use.bytes_per_step for use in uses),
        in_use_s=fmean(use.in_use_s for use in uses),
        num_messages=fmean(use.num_messages for use in uses),
    )


def _must_send_bytes(plan: Plan, rank: int) -> float:
    shared = [reduction for reduction in plan.reductions if rank in reduction.members]
    return sum(2 * (1 - 1 / len(reduction.members)) * reduction.num_bytes for reduction in shared)


def _union_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length that intervals cover together."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered
