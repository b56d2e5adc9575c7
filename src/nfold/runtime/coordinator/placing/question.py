"""Where the data of a run should live, as a question for the planner: nodes as they were measured. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import ceil, sqrt
from statistics import fmean

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.residency import NodeData, Spans, TrafficKind
from nfold.planning.inputs.facts import Facts
from nfold.planning.residency.model.pieces import piece_bytes_on
from nfold.planning.residency.model.problem import UNHANDLED, Demand, Handling, Problem, problem_of
from nfold.planning.residency.model.program_rates import program_rates
from nfold.planning.residency.model.spans import num_samples, without
from nfold.planning.residency.model.traffic import Traffic
from nfold.planning.residency.node_inventory import SampleCosts
from nfold.runtime.coordinator.placing.loans import LENT

_DEVIATIONS = 3
"""Of the bytes of all that comes, for which room is kept."""


def question_of(
    facts: Facts,
    found: Sequence[NodeData],
    own: Sequence[tuple[int, int]],
    lists: Sequence[Spans],
    costs: Sequence[SampleCosts | None],
    sample_bytes: float,
    deviation_bytes: float,
    *,
    epochs: int,
    traffic: TrafficKind,
    excluded: Collection[str] = (),
) -> Problem:
    """Return the question of a run.

    Args:
        facts: of the run: program, machines as they were measured, and one rank for each node.
        found: what lives on each rank's node.
        own: the samples that live on each rank's node, which keep their room wherever they are trained on.
        lists: the samples that each rank holds.
        costs: of moving, as each rank has measured them; None: it had no sample.
        sample_bytes: the mean of a sample, when it is sent.
        deviation_bytes: its standard deviation: storage holds bytes, and these are not known of each sample.
        epochs: that are left.
        traffic: by which gradients are summed.
        excluded: nodes that shall hold nothing.

    Raises:
        ClusterError: no plan can do it.
    """
    nodes = tuple(
        replace(
            facts.cluster.node(name),
            num_samples=num_samples(spans),
            num_pinned=min(data.num_pinned, num_samples(spans)),
            sample_bytes=max(1, round(sample_bytes)),
            samples_per_s=None,
            storage_bytes=safe_bytes(
                left_bytes(facts.cluster.node(name).storage_bytes, lived, spans, sample_bytes),
                spans,
                sample_bytes,
                deviation_bytes,
            ),
        )
        for name, data, lived, spans in zip(facts.nodes, found, own, lists, strict=True)
    )
    cluster = Cluster(nodes=nodes)
    rates = program_rates(facts, cluster)
    step = Traffic(kind=traffic, gradient_bytes=rates.gradient_bytes)
    demand = Demand(epochs=epochs, batch_size=facts.batch_size, traffic=step)
    moving = dict(zip(facts.nodes, handling_of(nodes, costs, sample_bytes), strict=True))
    problem = problem_of(
        cluster, demand, rates=rates.samples_per_s, update_s=rates.update_s, handling=moving, excluded=excluded
    )
    holdings = zip(problem.residency.holdings, lists, strict=True)
    listed = tuple(replace(holding, spans=spans) for holding, spans in holdings)
    return replace(problem, residency=replace(problem.residency, holdings=listed))


def handling_of(nodes: Sequence[Node], costs: Sequence[SampleCosts | None], sample_bytes: float) -> list[Handling]:
    """Return what moving costs each node: its processor makes bytes of samples, and messages of bytes.

    Args:
        nodes: as they were measured.
        costs: on a core of each; one that had no sample is taken to be like the others.
        sample_bytes: the mean of a sample, when it is sent.
    """
    known = [each for each in costs if each is not None]
    if not known:
        return [UNHANDLED for _ in nodes]
    usual = SampleCosts(
        send_s=fmean(each.send_s for each in known),
        keep_s=fmean(each.keep_s for each in known),
        read_s=fmean(each.read_s for each in known),
    )
    return [_handling(node, each or usual, sample_bytes) for node, each in zip(nodes, costs, strict=True)]


def _handling(node: Node, costs: SampleCosts, sample_bytes: float) -> Handling:
    slower = node.slowdown(1)
    return Handling(
        send_s=slower * (costs.send_s + _end_s(node.uplink, sample_bytes)),
        take_s=slower * (costs.keep_s + _end_s(node.downlink, sample_bytes)),
        read_s=slower * costs.read_s,
    )


def _end_s(link: Channel | None, sample_bytes: float) -> float:
    """Return the processor seconds that a sample's bytes cost one end of a link."""
    if link is None:
        return 0.0
    return link.end_s(sample_bytes, sample_bytes / piece_bytes_on(link.bandwidth_bytes_per_s))


def left_bytes(storage_bytes: int | None, own: tuple[int, int], held: Spans, sample_bytes: float) -> int | None:
    """Return a node's storage without what its own samples take of it that it has given to others: they stay there.

    Args:
        storage_bytes: that it has; None: it is not limited.
        own: the samples that live there.
        held: those that it trains on now.
        sample_bytes: the mean of a sample.
    """
    if storage_bytes is None:
        return None
    return max(0, storage_bytes - ceil(num_samples(without((own,), held)) * sample_bytes))


def safe_bytes(storage_bytes: int | None, held: Spans, sample_bytes: float, deviation_bytes: float) -> int | None:
    """Return the storage of a node that may be planned with; None: it is not limited.

    What comes is larger than its mean by three standard deviations of its sum at most, and what was lent lies there.

    Args:
        storage_bytes: that it has.
        held: samples that are there already.
        sample_bytes: the mean of a sample.
        deviation_bytes: the standard deviation of a sample.
    """
    if storage_bytes is None:
        return None
    held_bytes = ceil(num_samples(held) * max(1, round(sample_bytes)))
    come = max(0.0, (storage_bytes - held_bytes) / sample_bytes)
    margin_bytes = _DEVIATIONS * deviation_bytes * sqrt(come) + LENT * sample_bytes
    return max(min(storage_bytes, held_bytes), int(storage_bytes - margin_bytes))
