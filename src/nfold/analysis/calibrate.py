"""The question that was planned from + what the run measured -> a question whose simulation resembles the run.

What a change would gain is read off two simulations. Both must start from the run as it was, not from the probes and
profiles before it: a node that neighbours slow, a link that became slower, a data set that is read more slowly.

    profiles      x  measured / simulated seconds of the typical node, for compute and for the update
    node speed    /  how much slower the node computes than the typical one
    load          =  input seconds per sample that a worker really waited
    full links    =  their speed in this run
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean, median

from nfold.analysis.facts import Facts
from nfold.analysis.network import ChannelUse
from nfold.analysis.playback import Playback
from nfold.analysis.simulated import parts_of
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.profile import ChunkTiming, Profile, Timing
from nfold.planning.facts import Facts as Question
from nfold.simulation import unsteadiness


def calibrated(facts: Facts, question: Question, planned: Playback, full: Iterable[ChannelUse]) -> Question:
    """Return the question with this run's measurements in place of those before it.

    Args:
        facts: of the run.
        question: what was planned from.
        planned: its simulation.
        full: links whose measured speed is the link's own limit.
    """
    simulated = parts_of(planned.trace, [0] * facts.plan.world_size)
    workers = range(facts.plan.workers)
    usual = unsteadiness.slowness(
        planned.scenario.schedule, [question.cluster.node(name) for name in planned.scenario.nodes]
    )
    compute = {
        rank: _ratio(facts.mean_s(rank, "compute_s") * usual.get(rank, 1.0), simulated[rank].compute_s)
        for rank in workers
    }
    slowness = _by_node(facts, compute)
    typical = median(slowness.values())
    update = _ratio(
        fmean(facts.mean_s(rank, "update_s") for rank in workers), fmean(simulated[rank].update_s for rank in workers)
    )
    input_s = median(facts.mean_s(rank, "input_s") for rank in workers)
    load_s = input_s * facts.plan.workers / max(1, facts.plan.batch_size)
    profiles = {count: _scaled(each, typical, update, load_s) for count, each in question.profiles.items()}
    nodes = tuple(_node(node, slowness.get(node.name, typical) / typical, full) for node in question.cluster.nodes)
    return replace(question, profiles=profiles, cluster=Cluster(nodes=nodes))


def _by_node(facts: Facts, of_rank: Mapping[int, float]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for rank, value in of_rank.items():
        values.setdefault(facts.plan.nodes[rank], []).append(value)
    return {name: fmean(each) for name, each in values.items()}


def _ratio(measured: float, simulated: float) -> float:
    return measured / simulated if measured > 0 and simulated > 0 else 1.0


def _scaled(profile: Profile, compute: float, update: float, load_s_per_sample: float) -> Profile:
    return replace(
        profile,
        whole=tuple(_slower(timing, compute) for timing in profile.whole),
        update=_times(profile.update, update),
        load_s_per_sample=load_s_per_sample,
    )


def _slower(timing: ChunkTiming, factor: float) -> ChunkTiming:
    return replace(timing, forward=_times(timing.forward, factor), backward=_times(timing.backward, factor))


def _times(timing: Timing, factor: float) -> Timing:
    return replace(timing, median_s=timing.median_s * factor)


def _node(node: Node, slower: float, full: Iterable[ChannelUse]) -> Node:
    speeds = {use.side: use.speed_bytes_per_s for use in full if use.node == node.name}
    return replace(
        node,
        speed=node.speed / slower,
        uplink=_at(node.uplink, speeds.get("uplink")),
        downlink=_at(node.downlink, speeds.get("downlink")),
    )


def _at(channel: Channel | None, speed: float | None) -> Channel | None:
    if channel is None or not speed:
        return channel
    return replace(channel, bandwidth_bytes_per_s=speed, origin="measured")
