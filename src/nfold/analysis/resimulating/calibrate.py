"""The question that was planned from + what the run measured -> a question whose simulation resembles the run.

What a change would gain is read off two simulations. Both must start from the run as it was, not from the probes and
profiles before it: a node that neighbours slow, a link that became slower, a data set that is read more slowly.

    profiles      x  measured / simulated seconds of work of the typical node
    node speed    /  how much slower the node works than the typical one
    load          =  input seconds per sample that a worker really waited
    full links    =  their speed in this run

Work is all that keeps a rank's compute lane busy: computing, updates, and what tasks cost beside that. Under a quota a
short task takes its bare time or waits for most of a period, and which of both chance decides: so all work of a step is
compared at once, and with the mean over the moments at which quotas may be granted. A rank that has little to do says
nothing of its node, and equal nodes are seldom measured as equal: nodes that differ by no more than that are taken for
equal, or every other placement would be promised the luck of the node that happened to look fastest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from nfold.analysis.measured.channel_use import ChannelUse
from nfold.analysis.measured.measured_facts import MeasuredFacts
from nfold.analysis.resimulating.playback import Playback
from nfold.analysis.resimulating.simulated_parts import parts_of
from nfold.core.cluster import Channel, Node
from nfold.core.profile import ChunkTiming, Profile, Timing
from nfold.core.trace import StepParts
from nfold.planning.inputs.facts import Facts as Question

ALIKE = 1.15
"""Equal nodes of a shared machine differ by a tenth or so in half a second of computing, and in a run of some steps."""
_HALF = 0.5


def calibrated(facts: MeasuredFacts, question: Question, played: Playback, full: Iterable[ChannelUse]) -> Question:
    """Return the question with this run's measurements in place of those before it.

    Args:
        facts: of the run.
        question: what was planned from.
        played: its simulation.
        full: links whose measured speed is the link's own limit.
    """
    slowness = _slowness(facts, played)
    typical = median(slowness.values())
    load_s = median(facts.mean_s(rank, "input_s") / _read_samples(facts, rank) for rank in facts.busy_workers)
    return corrected(question, slowness, facts.plan.nodes[: facts.plan.workers], full, update=typical, load_s=load_s)


def _read_samples(facts: MeasuredFacts, rank: int) -> float:
    """Return about how many samples of a batch a worker reads: an even part, or those that live on it."""
    plan = facts.plan
    return max(1.0, plan.samples_of(rank) if plan.chunk_shares else plan.batch_size / len(facts.busy_workers))


def corrected(
    question: Question,
    slowness: Mapping[str, float],
    workers: Sequence[str],
    full: Iterable[ChannelUse],
    *,
    update: float,
    load_s: float,
) -> Question:
    """Return the question with what it was off by taken out.

    Args:
        question: that was simulated.
        slowness: measured over simulated seconds of work by node.
        workers: node of each worker.
        full: links whose measured speed is the link's own limit.
        update: measured over simulated seconds of an optimizer step.
        load_s: that a worker really waited for a sample.
    """
    typical = median(slowness.values())
    speeds = _evened(
        {name: question.cluster.node(name).speed * typical / slowness.get(name, typical) for name in workers}
    )
    profiles = {count: _scaled(each, typical, update, load_s) for count, each in question.profiles.items()}
    nodes = tuple(_node(node, speeds.get(node.name, node.speed), full) for node in question.cluster.nodes)
    cluster = replace(question.cluster, nodes=nodes)
    return replace(question, profiles=profiles, cluster=cluster, load_is_waited=True)


def _slowness(facts: MeasuredFacts, played: Playback) -> dict[str, float]:
    """Return measured over simulated seconds of work by node, of nodes whose ranks have enough of it to tell."""
    simulated = _work_s(played)
    nodes = played.scenario.nodes
    found: dict[str, list[float]] = {}
    for rank in _busy_ranks(facts, played):
        measured_s = facts.mean_s(rank, "compute_s") + facts.mean_s(rank, "update_s") + facts.mean_s(rank, "other_s")
        found.setdefault(nodes[rank], []).append(ratio(measured_s, simulated[rank]))
    return {name: fmean(each) for name, each in found.items()}


def _busy_ranks(facts: MeasuredFacts, played: Playback) -> list[int]:
    """Return the workers with at least half as much to compute as any, on nodes that were alike."""
    loads = dict.fromkeys(range(facts.plan.workers), 0.0)
    for (rank, _), seconds in played.scenario.task_seconds.items():
        if rank in loads:
            loads[rank] += seconds
    return [rank for rank, load in loads.items() if load >= _HALF * max(loads.values())]


def _work_s(played: Playback) -> list[float]:
    """Return each rank's simulated seconds of work, as a mean over steps has them."""
    steps = [parts_of(trace, [0] * len(trace.step_s)) for trace in played.steady_steps()]
    return [fmean(_lane_s(parts) for parts in of_rank) for of_rank in zip(*steps, strict=True)]


def _lane_s(parts: StepParts) -> float:
    return parts.compute_s + parts.update_s


def _evened(speeds: Mapping[str, float]) -> dict[str, float]:
    """Give nodes that may be equal their median speed: the largest group first, of equally large ones the tightest.

    They are compared with each other: the median of two nodes is between them, so both may be near it and far apart.
    """
    even: dict[str, float] = {}
    left = sorted(speeds, key=lambda name: speeds[name])
    while left:
        groups = [_alike(left[first:], speeds) for first in range(len(left))]
        group = max(groups, key=lambda names: (len(names), speeds[names[0]] / speeds[names[-1]]))
        even |= dict.fromkeys(group, median(speeds[name] for name in group))
        left = [name for name in left if name not in even]
    return even


def _alike(names: Sequence[str], speeds: Mapping[str, float]) -> list[str]:
    """Return the nodes that may be equal to the first, which is the slowest."""
    return [name for name in names if speeds[name] <= ALIKE * speeds[names[0]]]


def ratio(measured: float, simulated: float) -> float:
    """Return how much more was measured than simulated; 1.0 where one of them knows nothing."""
    return measured / simulated if measured > 0 and simulated > 0 else 1.0


def _scaled(profile: Profile, work: float, update: float, load_s_per_sample: float) -> Profile:
    return replace(
        profile,
        whole=tuple(_slower(timing, work) for timing in profile.whole),
        update=_times(profile.update, update),
        update_call_s=profile.update_call_s * update,
        load_s_per_sample=load_s_per_sample,
        loaders=0,
    )


def _slower(timing: ChunkTiming, factor: float) -> ChunkTiming:
    return replace(timing, forward=_times(timing.forward, factor), backward=_times(timing.backward, factor))


def _times(timing: Timing, factor: float) -> Timing:
    return replace(timing, median_s=timing.median_s * factor)


def _node(node: Node, speed: float, full: Iterable[ChannelUse]) -> Node:
    speeds = {use.side: use.speed_bytes_per_s for use in full if use.node == node.name}
    return replace(
        node,
        speed=speed,
        uplink=_at(node.uplink, speeds.get("uplink")),
        downlink=_at(node.downlink, speeds.get("downlink")),
    )


def _at(channel: Channel | None, speed: float | None) -> Channel | None:
    if channel is None or not speed:
        return channel
    return replace(channel, bandwidth_bytes_per_s=speed, origin="measured")
