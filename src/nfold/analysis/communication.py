"""Which part of the network holds a run back: latency, a link, the transport's own work, or a server.

The order of the questions matters: small messages never fill a link, and a link that is full needs no other reason.

    latency     messages x fixed cost   > half of the exposed communication
    link        achieved bandwidth      >= 0.8 of what the channel can do
    server      a dedicated server's own work > half of the exposed communication
    transport   what is left: the bytes are moved by processors that had no time for them
"""

from nfold.analysis.facts import Facts
from nfold.analysis.finding import Finding
from nfold.analysis.network import ChannelUse
from nfold.analysis.units import count, percent, rate, seconds, size

_HALF = 0.5
_FULL = 0.8


def communication(facts: Facts) -> Finding | None:
    """Return what exposed communication is due to; None when there is none."""
    if facts.plan.world_size == 1 or facts.parts.exposed_communication_s <= 0:
        return None
    return _latency(facts) or _link(facts) or _server(facts) or _transport(facts)


def _latency(facts: Facts) -> Finding | None:
    exposed_s = facts.parts.exposed_communication_s
    use = max(facts.channels, key=lambda use: use.latency_s, default=None)
    if use is None or use.latency_s <= _HALF * exposed_s:
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
        text=f"Latency: {evidence} over {use.place}, and each step waits {seconds(exposed_s)} for them. "
        "Fewer, larger messages would help: a larger batch (fewer steps), or a server instead of a ring.",
        next_command=_compare(facts),
    )


def _link(facts: Facts) -> Finding | None:
    use = facts.channels[0] if facts.channels else None
    if use is None or use.utilisation < _FULL:
        return None
    exposed_s, moved = facts.parts.exposed_communication_s, rate(use.achieved_bytes_per_s)
    can = rate(use.channel.bandwidth_bytes_per_s)
    return Finding(
        kind="link",
        verdict="link",
        place=use.place,
        lost_s=exposed_s,
        value=use.achieved_bytes_per_s / 1e6,
        unit="MB/s",
        evidence=f"{use.place} moves {moved}, {percent(use.utilisation)} of the {can} that it can",
        text=f"Link: {use.place} moves {moved}, {percent(use.utilisation)} of the {can} that it can, and each step "
        f"waits {seconds(exposed_s)} for it. Send less (a larger batch, fewer ranks), or use a faster link.",
        next_command=_compare(facts),
    )


def _server(facts: Facts) -> Finding | None:
    exposed_s = facts.parts.exposed_communication_s
    if not facts.server_busy_s:
        return None
    rank, busy_s = max(facts.server_busy_s.items(), key=lambda item: item[1])
    if busy_s <= _HALF * exposed_s or _processor_s(facts) > busy_s:
        return None
    node, workers = facts.plan.nodes[rank], facts.plan.workers
    evidence = f"rank {rank} sums for {count(workers, 'worker')} and works {seconds(busy_s)} of each step"
    return Finding(
        kind="server",
        verdict="server",
        place=f"rank {rank} on {node}",
        lost_s=exposed_s,
        value=busy_s * 1e3,
        evidence=evidence,
        text=f"Server: {evidence}, while the workers wait {seconds(exposed_s)}. "
        "Spread the sums: more servers (--servers), or --strategy ring.",
        next_command=f"nfold train {{file}} -n {workers} --strategy ps --servers {facts.plan.servers + 1}",
    )


def _transport(facts: Facts) -> Finding:
    exposed_s, place, evidence = facts.parts.exposed_communication_s, "network", "no message of it was traced"
    if facts.channels:
        use, place = facts.channels[0], facts.channels[0].place
        evidence = (
            f"{place} moves {rate(use.achieved_bytes_per_s)}, {percent(use.utilisation)} of what it can; "
            f"moving the bytes takes every core {seconds(_processor_s(facts))} a step"
        )
    return Finding(
        kind="transport",
        verdict="transport",
        place=place,
        lost_s=exposed_s,
        value=exposed_s * 1e3,
        evidence=evidence,
        text=f"Transport: each step waits {seconds(exposed_s)} for messages and no link is known to be full: "
        f"{evidence}. Leave a core to the network (fewer ranks per machine), or send less (a larger batch).",
        next_command=_compare(facts),
    )


def _processor_s(facts: Facts) -> float:
    """Processor seconds per step of all messages, over the cores of the node that works most for them."""
    spans = [span for step in facts.trace.steps for span in step.spans if span.kind == "SEND"]
    num_bytes = sum(span.payload_bytes for span in spans) / max(1, len(facts.trace.steps))
    num_messages = len(spans) / max(1, len(facts.trace.steps))
    return max((_processor_s_of(use, facts, num_bytes, num_messages) for use in facts.channels), default=0.0)


def _processor_s_of(use: ChannelUse, facts: Facts, num_bytes: float, num_messages: float) -> float:
    cores = min(core_use.node.cores for core_use in facts.cores)
    return (num_bytes * use.channel.cpu_s_per_byte + num_messages * use.channel.cpu_s_per_message) / max(cores, 1e-9)


def _bytes_per_message(facts: Facts) -> float:
    sizes = [span.payload_bytes for step in facts.trace.steps for span in step.spans if span.kind == "SEND"]
    return sum(sizes) / max(1, len(sizes))


def _compare(facts: Facts) -> str:
    return f"nfold compare {{file}} -n 1,{facts.plan.workers} --strategies ring,ps"
