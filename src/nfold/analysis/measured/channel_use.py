"""Message spans -> what each channel moved, how fast, how long something waited for it; and the bus bandwidth."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Literal

from nfold.analysis.measured.arrivals import Move, arrival_rate, moving_rate, union_s
from nfold.analysis.measured.joined_steps import joined
from nfold.analysis.measured.node_loads import framing
from nfold.core.cluster import Channel, Cluster
from nfold.core.plan import Plan
from nfold.core.trace import Span, StepTrace, Trace

Side = Literal["uplink", "downlink", "loopback"]
SURELY_MORE = 1.1
"""Two measurements of one full link differ by less."""
KEPT_BYTES = 256 << 10
"""What the kernel takes at most of a message that has not left."""
_ALIKE = 0.9
"""Of the known speed: what comes as fast as that came as fast as the link could."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelUse:
    """What one channel did in a mean step."""

    node: str
    side: Side
    channel: Channel
    bytes_per_step: float
    in_use_s: float
    """Per step: a rank of the node had bytes to send or bytes coming."""
    num_messages: float
    """Per step, on the rank with most of them (they follow each other)."""
    speed_bytes_per_s: float
    """Of a link: what it carries while it sends. Within a node: bytes over the time of use."""
    is_seen: bool = True
    """Whether this run shows that speed; else too little came for it, and it is what was known of the link before."""
    framing: float = 1.0
    """Bytes on the wire for each byte of payload; all other figures are of payload."""
    queued_s: float = 0.0
    """Per step: a message over it had begun and was not through, mean over the ways that cross it."""

    @property
    def place(self) -> str:
        """Its name in tables: `n2 uplink`."""
        return f"{self.node} {self.side}"

    @property
    def owner(self) -> str:
        """Its name in sentences: `n2's uplink`."""
        return f"{self.node}'s {self.side}"

    @property
    def wire_bytes_per_s(self) -> float:
        """Its speed as links are sold, headers included."""
        return self.speed_bytes_per_s * self.framing if self.is_seen else self.known_bytes_per_s

    @property
    def moved_bytes_per_s(self) -> float:
        """What it surely moved: its speed, or where that is not seen its bytes over the time of use."""
        if self.is_seen:
            return self.speed_bytes_per_s
        return self.bytes_per_step / self.in_use_s if self.in_use_s > 0 else 0.0

    @property
    def known_bytes_per_s(self) -> float:
        """What was known of it before the run, in the same terms: a probe counts payload, a declaration does not."""
        known = self.channel.bandwidth_bytes_per_s
        return known * self.framing if self.channel.origin == "measured" else known

    @property
    def utilisation(self) -> float:
        """What it surely moved in this run over what was measured or declared before it."""
        return self.moved_bytes_per_s / self.channel.bandwidth_bytes_per_s

    @property
    def full_share(self) -> float | None:
        """How full it is, of what it was declared or else measured to carry; None where it carried much more.

        Then nobody knows what it can carry: a probe whose ranks lacked processor time found too little.
        """
        declared = self.channel.declared_bytes_per_s
        share = self.moved_bytes_per_s * self.framing / declared if declared else self.utilisation
        return None if share > SURELY_MORE else min(1.0, share)

    @property
    def busy_s(self) -> float:
        """What its bytes need at its speed."""
        return self.bytes_per_step * self.framing / self.wire_bytes_per_s if self.wire_bytes_per_s > 0 else 0.0

    @property
    def busy_share(self) -> float:
        """Share of the time of use in which its bytes move."""
        return min(1.0, self.busy_s / self.in_use_s) if self.in_use_s > 0 else 0.0

    @property
    def queued_share(self) -> float:
        """Share of the time of use in which something waited for it."""
        return min(1.0, self.queued_s / self.in_use_s) if self.in_use_s > 0 else 0.0

    @property
    def latency_s(self) -> float:
        """Fixed costs of a step's messages, one after another."""
        return self.num_messages * self.channel.latency_s


def channel_uses(plan: Plan, trace: Trace, cluster: Cluster) -> tuple[ChannelUse, ...]:
    """Return every channel that moved bytes, the fullest first; empty when no step was traced task by task."""
    uses: dict[str, list[ChannelUse]] = {}
    for step, num_steps in _stretches(plan, trace):
        for use in _Step(with_arriving_bytes(step), plan, cluster).uses():
            uses.setdefault(use.place, []).append(_per_step(use, num_steps))
    ratio = framing(trace)
    means = [replace(_mean(each), framing=ratio) for each in uses.values()]
    return tuple(sorted(means, key=lambda use: -use.utilisation))


def bus_bandwidth_bytes_per_s(plan: Plan, trace: Trace, cluster: Cluster) -> float | None:
    """Return bytes that each worker must send for the reductions over the time that its network was in use.

    A sum over n members needs 2(n-1)/n of the bucket from each of them, whatever the route (Patarasuk and Yuan 2009),
    so ring and server compare. None on one rank, or when no step was traced task by task.
    """
    rates = []
    for step, num_steps in _stretches(plan, trace):
        arriving = with_arriving_bytes(step)
        for rank in range(plan.workers):
            in_use_s = network_in_use_s(arriving, rank, plan, cluster) / num_steps
            if in_use_s > 0:
                rates.append(_must_send_bytes(plan, rank) / in_use_s)
    return fmean(rates) if rates and max(rates) > 0 else None


def _stretches(plan: Plan, trace: Trace) -> list[tuple[StepTrace, int]]:
    """Return what is looked at on its own, and how many steps it is: all together where they overlap."""
    if plan.asynchrony is not None and trace.steps:
        return [(joined(trace.steps), len(trace.steps))]
    return [(step, 1) for step in trace.steps]


def with_arriving_bytes(step: StepTrace) -> StepTrace:
    """Give receives the bytes that they brought, where only the sending rank counts them.

    Messages between two ranks come in the order in which they went, so the k-th to come is the k-th sent.
    """
    sizes: dict[tuple[int, int], list[int]] = {}
    for span in sorted(step.spans, key=lambda span: span.end_s):
        if span.kind == "SEND":
            sizes.setdefault((span.rank, span.peer), []).append(span.payload_bytes)
    spans, taken = [], dict.fromkeys(sizes, 0)
    for span in sorted(step.spans, key=lambda span: span.end_s):
        way = (span.peer, span.rank)
        if span.kind == "RECV" and not span.payload_bytes and taken.get(way, 0) < len(sizes.get(way, ())):
            taken[way] += 1
            spans.append(replace(span, payload_bytes=sizes[way][taken[way] - 1]))
        else:
            spans.append(span)
    return replace(step, spans=tuple(spans))


def network_in_use_s(step: StepTrace, rank: int, plan: Plan, cluster: Cluster) -> float:
    """Return the seconds in which a rank had bytes to send or bytes coming."""
    return union_s(network_in_use(step, rank, plan, cluster))


def network_in_use(step: StepTrace, rank: int, plan: Plan, cluster: Cluster) -> list[tuple[float, float]]:
    """Return when a rank had bytes to send or bytes coming, on the clock of its step; intervals may overlap.

    A receive may be posted long before its bytes exist, so nothing counts before the rank's first send could start or
    its first arrival can have left the peer.
    """
    spans = [span for span in step.spans if span.rank == rank != span.peer and span.kind in ("SEND", "RECV")]
    sends = [span.start_s for span in spans if span.kind == "SEND"]
    arrivals = [_earliest_start_s(span, plan, cluster) for span in spans if span.kind == "RECV"]
    begin_s = min([*sends, *arrivals], default=0.0)
    return [(max(begin_s, span.start_s), span.end_s) for span in spans]


class _Step:
    """One traced step, its messages sorted by the way that they took."""

    def __init__(self, step: StepTrace, plan: Plan, cluster: Cluster) -> None:
        self._step, self._plan, self._cluster = step, plan, cluster
        self._sends: dict[tuple[int, int], list[Span]] = {}
        self._receives: dict[tuple[int, int], list[Span]] = {}
        for span in step.spans:
            if span.peer == span.rank:
                continue
            if span.kind == "SEND":
                self._sends.setdefault((span.rank, span.peer), []).append(span)
            elif span.kind == "RECV":
                self._receives.setdefault((span.peer, span.rank), []).append(span)
        ranks = {rank for way in self._sends for rank in way}
        self._in_use = {rank: self._on_clock(rank, network_in_use(step, rank, plan, cluster)) for rank in ranks}

    def uses(self) -> list[ChannelUse]:
        """One use per node and direction; its ranks share uplink and downlink but not what is within the node."""
        found = []
        for node in self._cluster.nodes:
            ends = {way: tuple(self._plan.nodes[rank] == node.name for rank in way) for way in self._sends}
            local = [way for way in ends if ends[way] == (True, True)]
            out = [way for way in ends if ends[way] == (True, False)]
            into = [way for way in ends if ends[way] == (False, True)]
            if local:
                found.append(self._local(node.name, node.local, local))
            if out and node.uplink:
                found.append(self._link(node.name, "uplink", node.uplink, out))
            if into and node.downlink:
                found.append(self._link(node.name, "downlink", node.downlink, into))
        return found

    def _local(self, node: str, channel: Channel, ways: list[tuple[int, int]]) -> ChannelUse:
        busiest = max(ways, key=self._bytes)
        in_use_s = union_s(self._in_use[busiest[0]])
        return ChannelUse(
            node=node,
            side="loopback",
            channel=channel,
            bytes_per_step=self._bytes(busiest),
            in_use_s=in_use_s,
            num_messages=self._num_messages(ways, 0),
            speed_bytes_per_s=self._bytes(busiest) / in_use_s if in_use_s > 0 else 0.0,
        )

    def _link(self, node: str, side: Side, channel: Channel, ways: list[tuple[int, int]]) -> ChannelUse:
        """Use of a link: as fast as its messages came, but no faster than it was known to be unless bytes prove it.

        Messages of several peers come side by side and show only at their ends, so that few of them may seem fast.
        """
        num_bytes, known = sum(map(self._bytes, ways)), channel.bandwidth_bytes_per_s
        speed = self._uplink_speed(ways, num_bytes, known) if side == "uplink" else self._speed_into(ways)
        if speed is not None and speed < _ALIKE * known and self._may_be_paced(ways, known):
            speed = None
        own = 0 if side == "uplink" else 1
        in_use = [each for rank in {way[own] for way in ways} for each in self._in_use[rank]]
        if speed is None and side == "uplink":
            in_use += [self._until_left(span, known) for way in ways for span in self._sends[way]]
        in_use_s = union_s(in_use)
        floor = num_bytes / in_use_s if in_use_s > 0 else 0.0
        is_seen = speed is not None or floor > known
        speed = min(speed, max(floor, known)) if speed is not None else max(floor, known)
        return ChannelUse(
            node=node,
            side=side,
            channel=channel,
            bytes_per_step=num_bytes,
            in_use_s=max(in_use_s, num_bytes / speed),
            num_messages=self._num_messages(ways, own),
            speed_bytes_per_s=speed,
            is_seen=is_seen,
            queued_s=fmean(union_s(_intervals(self._sends[way])) for way in ways),
        )

    def _until_left(self, span: Span, known: float) -> tuple[float, float]:
        """When a message was sent, until what the kernel has taken of it has left at the known speed."""
        start_s, end_s = self._on_node_clock(span)
        left_s = start_s + span.payload_bytes / known
        return start_s, max(end_s, min(left_s, end_s + KEPT_BYTES / known))

    def _may_be_paced(self, ways: list[tuple[int, int]], known: float) -> bool:
        """Whether bytes may have come as slowly as chunks were computed: the kernel took them all at once.

        Where the batch alone is shared out, what a rank sends next waits for messages, and not for computing.
        """
        if self._plan.asynchrony is not None or not self._plan.placement.is_cut:
            return False
        return sum(self._taken_bytes_per_s(way) for way in ways) > known

    def _taken_bytes_per_s(self, way: tuple[int, int]) -> float:
        sending_s = union_s(_intervals(self._sends[way]))
        return self._bytes(way) / sending_s if sending_s > 0 else float("inf")

    def _uplink_speed(self, ways: list[tuple[int, int]], num_bytes: float, known: float) -> float | None:
        """What its receivers got together, but never more than while anything was being sent.

        Where too little came to tell, only that bound is left; it says nothing of what the kernel took at once, which
        is more than the link can carry.
        """
        spans = [span for way in ways for span in self._sends[way]]
        sending_s = union_s([self._on_node_clock(span) for span in spans])
        most = num_bytes / sending_s if sending_s > 0 else float("inf")
        if self._plan.asynchrony is not None:
            most = moving_rate([self._moves(self._sends[way]) for way in ways]) or most
        receivers = {way[1] for way in ways}
        rates = [self._speed_into([way for way in ways if way[1] == rank]) for rank in receivers]
        seen = [rate for rate in rates if rate is not None]
        if len(seen) == len(rates):
            return min(most, sum(seen))
        return most if most <= known else None

    def _speed_into(self, ways: list[tuple[int, int]]) -> float | None:
        """How fast bytes came on one node's clock; in an asynchronous run it is known when each began to come."""
        if self._plan.asynchrony is not None:
            return moving_rate([self._moves(self._receives.get(way, ())) for way in ways])
        spans = [span for way in ways for span in self._receives.get(way, ())]
        return arrival_rate([(self._on_node_clock(span)[1], span.payload_bytes) for span in spans])

    def _moves(self, spans: Iterable[Span]) -> list[Move]:
        return [(*self._on_node_clock(span), span.payload_bytes) for span in spans]

    def _on_node_clock(self, span: Span) -> tuple[float, float]:
        return self._on_clock(span.rank, [(span.start_s, span.end_s)])[0]

    def _on_clock(self, rank: int, intervals: list[tuple[float, float]]) -> list[tuple[float, float]]:
        """On the clock that ranks of one node share."""
        zero_s = self._step.begin_s[rank] if self._step.begin_s else 0.0
        return [(zero_s + start_s, zero_s + end_s) for start_s, end_s in intervals]

    def _bytes(self, way: tuple[int, int]) -> int:
        return sum(span.payload_bytes for span in self._sends[way])

    def _num_messages(self, ways: list[tuple[int, int]], end: int) -> float:
        counts: dict[int, int] = {}
        for way in ways:
            counts[way[end]] = counts.get(way[end], 0) + len(self._sends[way])
        return max(counts.values())


def _earliest_start_s(span: Span, plan: Plan, cluster: Cluster) -> float:
    """A message of an idle network that came at `end_s` had left the peer by then."""
    node, peer = cluster.node(plan.nodes[span.rank]), plan.nodes[span.peer]
    channel = node.local if node.name == peer else node.downlink
    alone_s = channel.seconds(span.payload_bytes) if channel else 0.0
    return max(span.start_s, span.end_s - alone_s)


def _per_step(use: ChannelUse, num_steps: int) -> ChannelUse:
    return replace(
        use,
        bytes_per_step=use.bytes_per_step / num_steps,
        in_use_s=use.in_use_s / num_steps,
        num_messages=use.num_messages / num_steps,
        queued_s=use.queued_s / num_steps,
    )


def _mean(uses: list[ChannelUse]) -> ChannelUse:
    """A mean step, but the median speed: one disturbed step must not move it."""
    seen = [use.speed_bytes_per_s for use in uses if use.is_seen]
    is_seen = 2 * len(seen) >= len(uses)
    return ChannelUse(
        node=uses[0].node,
        side=uses[0].side,
        channel=uses[0].channel,
        bytes_per_step=fmean(use.bytes_per_step for use in uses),
        in_use_s=fmean(use.in_use_s for use in uses),
        num_messages=fmean(use.num_messages for use in uses),
        speed_bytes_per_s=median(seen) if is_seen else uses[0].channel.bandwidth_bytes_per_s,
        is_seen=is_seen,
        queued_s=fmean(use.queued_s for use in uses),
    )


def _must_send_bytes(plan: Plan, rank: int) -> float:
    shared = [reduction for reduction in plan.reductions if rank in reduction.members]
    return sum(2 * (1 - 1 / len(reduction.members)) * reduction.num_bytes for reduction in shared)


def _intervals(spans: Iterable[Span]) -> list[tuple[float, float]]:
    return [(span.start_s, span.end_s) for span in spans]
