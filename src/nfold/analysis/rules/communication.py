"""Which part of the network holds a run back, and so which class the finding has: link, server, latency, transport ..

The rules are asked in this order, and the first that applies speaks. Whether its finding becomes the run's verdict is
decided in `analysis/reporting/verdict.py`, which changes no class.

    bubble      the model is cut, and most of the wait is for other stages, however fast the network is
    latency     it is most of what communication costs (simulated again without it), or messages x fixed cost > half
                of it; of an asynchronous run, whose messages do not follow each other: round trips x fixed cost
    transport   the threads that move bytes keep their core, or what their node's share leaves them, busy for >= 0.8 of
                the time in which the network is in use; on a dedicated server: server, summing
    server      a link is full (>= 0.8 of its known speed), it is a dedicated server's, and no slower than the workers':
                incast
    link        a link is full
    server      a dedicated server's own work > half of the exposed communication: summing
    transport   a rank is throttled > 0.1 of the time, and moving bytes takes > 0.3 of its share
    link        no reason is left but that a link is slower than was known: the one that something waited for >= 0.8 of
                the time of use, and most
    transport   what is left within a machine: the bytes are moved by processors that had no time for them

The order matters: small messages never fill a link; a sender without a processor looked like a slow link to the probe,
too; and a link that is full needs no other reason.
"""

from collections.abc import Iterable, Sequence
from statistics import median

from nfold.analysis.measured.channel_use import SURELY_MORE, ChannelUse
from nfold.analysis.measured.measured_facts import MeasuredFacts
from nfold.analysis.resimulating.without_each_cause import AS_PLANNED, LATENCY, NETWORK
from nfold.analysis.rules.finding import HALF, Finding
from nfold.analysis.rules.pipelines import bubble
from nfold.analysis.rules.senders import (
    busy_senders,
    compare_architectures,
    of_what_it_can,
    processor_s,
    throttled_senders,
    unexplained,
)
from nfold.analysis.rules.slices import round_trips
from nfold.core.report import VerdictClass
from nfold.core.text.units import count, link_rate, percent, rate, seconds, size

FULL = 0.8
"""TCP keeps a shaped link 92 to 97 % busy in a ring and about 77 % under incast; a probe is 3 to 5 % off."""
MOSTLY = 0.4
"""A server's downlink is idle while values are pulled, and its uplink while gradients are pushed: half of the time."""
ALIKE = 0.95
"""Two probes of one link differ by that much."""
QUEUED = 0.8
"""A link that holds everything up has something waiting all the time; where processors do, queues empty in between."""
ABOUT = 0.85
"""Two links through which the same bytes pass at the same pace measure alike, but for where they pause."""


def communication(facts: MeasuredFacts) -> Finding | None:
    """Return what exposed communication is due to; None when there is none."""
    if facts.plan.world_size == 1 or facts.parts.exposed_communication_s <= 0:
        return None
    rules = (bubble, _latency, busy_senders, _incast, _full_link, _summing, throttled_senders, _slow_link, unexplained)
    return next(found for found in (rule(facts) for rule in rules) if found is not None)


def limiting_links(facts: MeasuredFacts, finding: Finding | None) -> tuple[ChannelUse, ...]:
    """Return the links that are full, and the one that a finding blames."""
    return tuple(
        use
        for use in _links(facts)
        if _is_full(facts, use) or (finding is not None and (use.node, use.side) == (finding.node, finding.side))
    )


def _latency(facts: MeasuredFacts) -> Finding | None:
    if facts.plan.asynchrony is not None:
        return round_trips(facts)
    exposed_s = facts.parts.exposed_communication_s
    use = max(facts.channels, key=lambda use: use.latency_s, default=None)
    if use is None or use.channel.latency_s <= 0 or _latency_share(facts, use) <= HALF:
        return None
    each = size(_bytes_per_message(facts))
    evidence = (
        f"{use.num_messages:.0f} messages of {each} a step, {seconds(use.channel.latency_s)} each before any byte"
    )
    return Finding(
        kind="latency",
        verdict="latency",
        place=use.place,
        lost_s=exposed_s,
        value=use.latency_s * 1e3,
        evidence=evidence,
        head=f"Latency: {evidence} over {use.owner}, and each step waits {seconds(exposed_s)} for them.",
        remedy="Fewer, larger messages would help: a larger batch (fewer steps), or a server instead of a ring.",
        next_command=compare_architectures(facts),
    )


def _latency_share(facts: MeasuredFacts, use: ChannelUse) -> float:
    """Share of the communication's cost that goes when latency goes; simulated, where that was possible."""
    variants = facts.what_ifs
    if NETWORK in variants:
        cost_s = variants[AS_PLANNED] - variants[NETWORK]
        return (variants[AS_PLANNED] - variants[LATENCY]) / cost_s if cost_s > 0 else 0.0
    return use.latency_s / facts.parts.exposed_communication_s


def _incast(facts: MeasuredFacts) -> Finding | None:
    """A server's link is full because everybody sends to it at once, not because it is slow."""
    use = _fullest(facts, _longest(facts))
    if use is None or use.node not in _server_nodes(facts) or _is_slower(facts, use):
        return None
    exposed_s, plan = facts.parts.exposed_communication_s, facts.plan
    rank = next(rank for rank in range(plan.workers, plan.world_size) if plan.nodes[rank] == use.node)
    evidence = (
        f"{count(plan.workers, 'worker')} share {use.owner}: {link_rate(use.wire_bytes_per_s)}, "
        f"{of_what_it_can(use)}; a worker's own link could do as much alone"
    )
    return _on_link(
        facts,
        use,
        kind="server",
        sub_cause="incast",
        place=f"rank {rank} on {use.node}",
        evidence=evidence,
        head=f"Server: {evidence}, and each step waits {seconds(exposed_s)} for it.",
        remedy="Spread the sums: over more servers, or over the workers themselves.",
    )


def _full_link(facts: MeasuredFacts) -> Finding | None:
    use = _fullest(facts, _longest(facts) or facts.channels)
    if use is None:
        return None
    if use.side == "loopback":
        return _full_loopback(facts, use)
    known = link_rate(use.known_bytes_per_s)
    evidence = (
        f"{use.owner} moves {link_rate(use.wire_bytes_per_s)} while it is in use, "
        f"{_of_known(use, known, use.channel.origin)}"
        if use.is_seen
        else f"{use.owner} needs {seconds(use.busy_s)} for the bytes of a step at the {_before(use)}, and is in use "
        f"for {seconds(use.in_use_s)}"
    )
    return _on_link(facts, use, evidence=evidence, head=_network(facts, use))


def _slow_link(facts: MeasuredFacts) -> Finding | None:
    """No link is as fast as it was known to be, and something waits all the time: the longest queue is the place."""
    use = max(_longest(facts), key=_queued, default=None)
    if use is None or use.queued_share < QUEUED:
        return None
    known = f"{link_rate(use.known_bytes_per_s)} {use.channel.origin}"
    evidence = (
        f"something waits for {use.owner} for {percent(use.queued_share)} of the time of use, and it moves "
        f"{link_rate(use.moved_bytes_per_s * use.framing)} of {known}"
    )
    was = f" It was {known} before the run." if use.is_seen else ""
    return _on_link(facts, use, evidence=evidence, head=f"{_network(facts, use)}{was}")


def _on_link(
    facts: MeasuredFacts,
    use: ChannelUse,
    *,
    evidence: str,
    head: str,
    kind: VerdictClass = "link",
    sub_cause: str = "",
    place: str = "",
    remedy: str = "Send less (a larger batch, fewer ranks), or use a faster link.",
) -> Finding:
    return Finding(
        kind=kind,
        verdict=kind,
        sub_cause=sub_cause,
        place=place or use.place,
        lost_s=facts.parts.exposed_communication_s,
        value=use.speed_bytes_per_s if use.side == "loopback" else use.wire_bytes_per_s,
        unit="bytes/s",
        evidence=evidence,
        head=head,
        remedy=remedy,
        next_command=compare_architectures(facts),
        node=use.node,
        side=use.side if use.side != "loopback" else "",
    )


def _network(facts: MeasuredFacts, use: ChannelUse) -> str:
    of_step = min(1.0, use.in_use_s / facts.step_s) if facts.step_s > 0 else 0.0
    alike = _num_alike(facts, use)
    one_of = f", one of {alike} alike" if alike > 1 else ""
    speed = link_rate(use.wire_bytes_per_s) if use.is_seen else f"{_before(use)} (too few messages show its speed)"
    return f"Network, {use.owner}{one_of}: {speed}, {percent(use.busy_share)} busy for {percent(of_step)} of each step."


def _before(use: ChannelUse) -> str:
    """`20 Mbit/s measured before the run`: where the run itself shows no speed."""
    return f"{link_rate(use.known_bytes_per_s)} {use.channel.origin} before the run"


def _full_loopback(facts: MeasuredFacts, use: ChannelUse) -> Finding:
    moved, can = rate(use.speed_bytes_per_s), rate(use.channel.bandwidth_bytes_per_s)
    evidence = f"{use.owner} moves {moved}, {_of_known(use, can, 'that it can')}"
    exposed_s = facts.parts.exposed_communication_s
    head = f"Link: {evidence}, and each step waits {seconds(exposed_s)} for it."
    return _on_link(facts, use, evidence=evidence, head=head)


def _summing(facts: MeasuredFacts) -> Finding | None:
    exposed_s = facts.parts.exposed_communication_s
    if not facts.server_busy_s:
        return None
    rank, busy_s = max(facts.server_busy_s.items(), key=lambda item: item[1])
    if busy_s <= HALF * exposed_s or processor_s(facts) > busy_s:
        return None
    node, workers = facts.plan.nodes[rank], facts.plan.workers
    evidence = f"rank {rank} sums for {count(workers, 'worker')} and works {seconds(busy_s)} of each step"
    return Finding(
        kind="server",
        verdict="server",
        sub_cause="summing",
        place=f"rank {rank} on {node}",
        lost_s=exposed_s,
        value=busy_s * 1e3,
        evidence=evidence,
        head=f"Server: {evidence}, while the workers wait {seconds(exposed_s)}.",
        remedy="Spread the sums: over more servers, or over the workers themselves.",
        next_command=f"nfold train {{file}} -n {workers} --strategy ps --servers {facts.plan.servers + 1}",
        node=node,
    )


def _of_known(use: ChannelUse, known: str, what: str) -> str:
    """`92 % of the 94 Mbit/s measured`, or `more than the ..`: no link carries more than it can."""
    if use.utilisation > SURELY_MORE:
        return f"more than the {known} {use.channel.origin}"
    return f"{percent(min(1.0, use.utilisation))} of the {known} {what}"


def _links(facts: MeasuredFacts) -> list[ChannelUse]:
    return [use for use in facts.channels if use.side != "loopback"]


def _longest(facts: MeasuredFacts) -> list[ChannelUse]:
    """Return the links that need longest for their bytes at their measured speed: the others wait for one of them."""
    links = _links(facts)
    longest_s = max((use.busy_s for use in links), default=0.0)
    return [use for use in links if use.busy_s >= ABOUT * longest_s]


def _fullest(facts: MeasuredFacts, uses: Iterable[ChannelUse]) -> ChannelUse | None:
    """Of the full ones the one that needs longest for its bytes; of those alike, the one that is queued for most."""
    full = [use for use in uses if _is_full(facts, use)]
    needs_s = [use.bytes_per_step / use.channel.bandwidth_bytes_per_s for use in full]
    longest = [use for use, need_s in zip(full, needs_s, strict=True) if need_s >= ALIKE * max(needs_s)]
    return max(_least_declared(longest), key=_queued, default=None)


def _least_declared(uses: Sequence[ChannelUse]) -> list[ChannelUse]:
    """Of links that measure alike, those that were declared slowest: a fast one is as slow as who takes its bytes."""
    declared = [use.channel.declared_bytes_per_s or 0.0 for use in uses]
    if not all(declared):
        return list(uses)
    return [use for use, rate in zip(uses, declared, strict=True) if ALIKE * rate <= min(declared)]


def _queued(use: ChannelUse) -> tuple[float, bool]:
    """How much waits for a link; of those for which as much does, uplinks are named."""
    return round(use.queued_share, 1), use.side == "uplink"


def _is_full(facts: MeasuredFacts, use: ChannelUse) -> bool:
    """Within a node only the rate counts, and all its ranks together may reach it in turns."""
    if use.utilisation < FULL or use.side == "loopback":
        return use.utilisation >= FULL
    return use.busy_share >= MOSTLY and use.busy_s >= MOSTLY * facts.parts.exposed_communication_s


def _server_nodes(facts: MeasuredFacts) -> set[str]:
    plan = facts.plan
    return set(plan.nodes[plan.workers : plan.world_size]) - set(plan.nodes[: plan.workers])


def _is_slower(facts: MeasuredFacts, use: ChannelUse) -> bool:
    """Whether a server's link is slow in itself: well below what the workers' links can do."""
    workers = [facts.cluster.node(name) for name in set(facts.plan.nodes[: facts.plan.workers])]
    channels = [node.uplink if use.side == "downlink" else node.downlink for node in workers]
    speeds = [channel.bandwidth_bytes_per_s for channel in channels if channel]
    return bool(speeds) and use.speed_bytes_per_s < FULL * median(speeds)


def _num_alike(facts: MeasuredFacts, use: ChannelUse) -> int:
    """Count the links in its direction that are full and no faster: where there are several, it is one of them."""
    same = (each for each in _links(facts) if each.side == use.side)
    no_faster = [each for each in same if each.speed_bytes_per_s <= use.speed_bytes_per_s / FULL]
    return sum(_is_full(facts, each) for each in no_faster)


def _bytes_per_message(facts: MeasuredFacts) -> float:
    sizes = [span.payload_bytes for step in facts.trace.steps for span in step.spans if span.kind == "SEND"]
    return sum(sizes) / max(1, len(sizes))
