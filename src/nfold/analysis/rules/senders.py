"""Bytes that wait for processors: threads that move them have none left, or a limit holds their rank back."""

from nfold.analysis.measured.channel_use import ChannelUse
from nfold.analysis.measured.measured_facts import MeasuredFacts
from nfold.analysis.measured.node_loads import THROTTLED
from nfold.analysis.rules.finding import Finding
from nfold.core.report import RankLoad
from nfold.core.text.units import link_rate, percent, rate, seconds

BUSY = 0.8
"""Of a core. A thread that moves bytes waits for locks now and then; one that waits for a link idles far more."""

MOVING = 0.3
"""Of what they could get: a limit that throttles the computing alone leaves those who move bytes idle."""


def busy_senders(facts: MeasuredFacts) -> Finding | None:
    """Return a finding where the threads that move bytes have no processor time left, though the link has room.

    It is of the rank whose threads are busiest, if that is >= BUSY of a core, or of what their node leaves them.
    """
    busy = {rank: _sending_share(facts, rank) for rank in facts.loads}
    rank = max(busy, key=lambda rank: busy[rank], default=None)
    if rank is None or busy[rank] < BUSY:
        return None
    load = facts.loads[rank]
    cores = facts.cluster.node(load.node).cores
    own = "a core" if cores >= 1 else f"the {cores:g} cores that {load.node} has"
    return _by_processor(
        facts,
        load,
        "processor",
        f"moving bytes keeps {percent(min(1.0, busy[rank]))} of {own} busy on rank {rank} while the network is in use",
        "Leave a core to the network (fewer compute threads or ranks per machine), or send less.",
    )


def throttled_senders(facts: MeasuredFacts) -> Finding | None:
    """Return a finding where a quota holds up a rank that moves bytes.

    It is of the rank that was throttled most, if that was > THROTTLED of the time, among those whose moving of bytes
    took > MOVING of what it could get.
    """
    moving = [load for load in facts.loads.values() if _sending_share(facts, load.rank) > MOVING]
    load = max(moving, key=lambda load: load.throttled_share, default=None)
    if load is None or load.throttled_share <= THROTTLED:
        return None
    cores = facts.cluster.node(load.node).cores
    return _by_processor(
        facts,
        load,
        "quota",
        f"rank {load.rank} is held back by its limit of {cores:g} cores {percent(load.throttled_share)} of the time",
        f"Raise the limit of {load.node}, or send less.",
    )


def _by_processor(facts: MeasuredFacts, load: RankLoad, sub_cause: str, why: str, remedy: str) -> Finding:
    """Bytes wait for a processor and not for the link; on a dedicated server moving bytes and summing are one thing."""
    exposed_s = facts.parts.exposed_communication_s
    evidence = f"{why}, and {_room(facts, load.node)}"
    is_server = load.rank >= facts.plan.workers
    kind = "server" if is_server else "transport"
    return Finding(
        kind=kind,
        verdict="server" if is_server else "transport",
        sub_cause="summing" if is_server else sub_cause,
        place=f"rank {load.rank} on {load.node}",
        lost_s=exposed_s,
        value=exposed_s * 1e3,
        evidence=evidence,
        head=f"{kind.capitalize()}: {evidence}; each step waits {seconds(exposed_s)} for messages.",
        remedy=remedy,
        next_command=compare_architectures(facts),
        node=load.node,
    )


def _room(facts: MeasuredFacts, node: str) -> str:
    """Say how full a node's part of the network is, where that is known."""
    uses = [use for use in facts.channels if use.node == node]
    use = max(uses, key=lambda use: 1.0 if use.full_share is None else use.full_share, default=None)
    if use is None:
        return "no message over the network was traced"
    if use.full_share is None:
        return f"{use.owner} moves {_speed(use)}, more than when it was probed"
    return f"{use.owner} is {percent(use.full_share)} full"


def _speed(use: ChannelUse) -> str:
    if use.side == "loopback":
        return rate(use.speed_bytes_per_s)
    return link_rate(use.moved_bytes_per_s * use.framing)


def _sending_share(facts: MeasuredFacts, rank: int) -> float:
    """Processor time of the threads that move bytes, over what they could get while the network was in use.

    They could get a core each, or what a small node's share leaves when its ranks' computing has had its part.
    """
    load, step_s = facts.loads[rank], facts.step_s
    in_use_s = min((use.in_use_s for use in facts.channels if use.node == load.node), default=step_s)
    if in_use_s <= 0 or step_s <= 0:
        return 0.0
    ranks = [other for other in facts.loads.values() if other.node == load.node]
    computing = sum(other.compute_cores for other in ranks)
    left = max(0.0, facts.cluster.node(load.node).cores - computing) / len(ranks)
    return load.communication_cores / max(min(in_use_s / step_s, left), 1e-9)


def unexplained(facts: MeasuredFacts) -> Finding:
    """Return a finding for a wait for messages that no other rule explains, with what the fullest channel moved."""
    exposed_s, place, evidence = facts.parts.exposed_communication_s, "network", "no message of it was traced"
    if facts.channels:
        use, place = facts.channels[0], facts.channels[0].place
        evidence = (
            f"{use.owner} moves {_speed(use)}, {of_what_it_can(use)}; "
            f"moving the bytes takes every core {seconds(processor_s(facts))} a step"
        )
    return Finding(
        kind="transport",
        verdict="transport",
        place=place,
        lost_s=exposed_s,
        value=exposed_s * 1e3,
        evidence=evidence,
        head=f"Transport: each step waits {seconds(exposed_s)} for messages and no link is known to be full: "
        f"{evidence}.",
        remedy="Leave a core to the network (fewer ranks per machine), or send less (a larger batch).",
        next_command=compare_architectures(facts),
    )


def of_what_it_can(use: ChannelUse) -> str:
    """Return `92 % of what it can`, where what it can is known."""
    return "more than when it was probed" if use.full_share is None else f"{percent(use.full_share)} of what it can"


def processor_s(facts: MeasuredFacts) -> float:
    """Return the processor seconds per step of all messages, over the cores of the node that works most for them."""
    spans = [span for step in facts.trace.steps for span in step.spans if span.kind == "SEND"]
    num_bytes = sum(span.payload_bytes for span in spans) / max(1, len(facts.trace.steps))
    num_messages = len(spans) / max(1, len(facts.trace.steps))
    return max((_work_s_of(use, facts, num_bytes, num_messages) for use in facts.channels), default=0.0)


def _work_s_of(use: ChannelUse, facts: MeasuredFacts, num_bytes: float, num_messages: float) -> float:
    cores = min(1.0, *(core_use.node.cores for core_use in facts.cores))  # a rank has one thread for them
    return 2 * use.channel.end_s(num_bytes, num_messages) / max(cores, 1e-9)


def compare_architectures(facts: MeasuredFacts) -> str:
    """Return the command for a question that the run did not answer: ring or ps, whichever it was not, at its size."""
    other = "ps" if facts.plan.strategy == "ring" else "ring"
    return f"nfold compare {{file}} -n {facts.plan.workers} --strategies {facts.plan.strategy},{other}"
