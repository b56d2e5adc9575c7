"""Where the data of a run should live, as a question for the planner: nodes as they were measured. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from nfold.core.cluster import Cluster
from nfold.core.residency import NodeData, Spans, TrafficKind
from nfold.planning.inputs.facts import Facts
from nfold.planning.residency.model.problem import Demand, Problem, problem_of
from nfold.planning.residency.model.program_rates import program_rates
from nfold.planning.residency.model.spans import num_samples
from nfold.planning.residency.model.traffic import Traffic


def question_of(
    facts: Facts,
    found: Sequence[NodeData],
    lists: Sequence[Spans],
    sample_bytes: float,
    *,
    epochs: int,
    traffic: TrafficKind,
) -> Problem:
    """Return the question of a run.

    Args:
        facts: of the run: program, machines as they were measured, and one rank for each node.
        found: what lives on each rank's node.
        lists: the samples that each rank holds.
        sample_bytes: the mean of a sample, when it is sent.
        epochs: that are left.
        traffic: by which gradients are summed.

    Raises:
        ClusterError: no plan can do it.
    """
    nodes = tuple(
        replace(
            facts.cluster.node(name),
            num_samples=num_samples(spans),
            num_pinned=data.num_pinned,
            sample_bytes=max(1, round(sample_bytes)),
            samples_per_s=None,
        )
        for name, data, spans in zip(facts.nodes, found, lists, strict=True)
    )
    cluster = Cluster(nodes=nodes)
    rates = program_rates(facts, cluster)
    step = Traffic(kind=traffic, gradient_bytes=rates.gradient_bytes)
    demand = Demand(epochs=epochs, batch_size=facts.batch_size, traffic=step)
    problem = problem_of(cluster, demand, rates=rates.samples_per_s, update_s=rates.update_s)
    holdings = zip(problem.residency.holdings, lists, strict=True)
    listed = tuple(replace(holding, spans=spans) for holding, spans in holdings)
    return replace(problem, residency=replace(problem.residency, holdings=listed))
