"""An asynchronous run -> the same run played again in virtual time: as it was, and without each cause of lost time.

It plays no schedule, so what is calibrated are the samples of each worker and the gradients of each server:

    profiles      x  measured / simulated seconds of a sample on the typical node
    node speed    /  how much slower the node works than the typical one
    update        x  measured / simulated seconds of applying a gradient, where that was traced
    load          =  input seconds per sample that a worker really waited
    full links    =  their speed in this run
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from statistics import fmean, median

from nfold.analysis.measured.channel_use import ChannelUse
from nfold.analysis.measured.measured_facts import MeasuredFacts
from nfold.analysis.resimulating.calibrate import corrected, ratio
from nfold.analysis.resimulating.changed_questions import (
    with_nodes,
    with_profiles,
    without_computing,
    without_input,
    without_updates,
)
from nfold.analysis.resimulating.even_work import of_typical_s
from nfold.analysis.resimulating.without_each_cause import (
    AS_PLANNED,
    COMPUTE,
    EVEN_LOAD,
    INPUT,
    LATENCY,
    NETWORK,
    OWN_CORES,
    UPDATE,
    with_own_cores,
    without_latency,
    without_network,
)
from nfold.core.plan import Plan
from nfold.errors import InternalError
from nfold.planning.asynchronous.asynchronous_simulation import STEPS, SimulatedRun
from nfold.planning.asynchronous.asynchronous_strategies import play, serving_ranks
from nfold.planning.inputs.facts import Facts as Question
from nfold.planning.inputs.facts import proposal_of

_MESSAGES = 3
"""To each server and slice: a request, an answer and a gradient."""


def drift_back(plan: Plan, question: Question) -> SimulatedRun:
    """Play an asynchronous plan as it is, threads included.

    Raises:
        ClusterError: two ranks that talk have no link between them.
        InternalError: it is a synchronous one, or cannot be played to its end.
    """
    if plan.asynchrony is None:
        raise InternalError(f"{plan.strategy} plays a schedule, and workers do not drift apart")
    return play(replace(question, nodes=plan.nodes), proposal_of(plan), plan.asynchrony, plan.threads)


def num_tasks(plan: Plan) -> int:
    """Count what is played: it says how long that takes, as the tasks of a schedule do."""
    per_server = 2 * _MESSAGES + 1  # each message has two ends, and a gradient is applied
    return STEPS * plan.workers * (1 + per_server * len(serving_ranks(plan.reductions)))


def calibrated_drift(
    facts: MeasuredFacts, question: Question, played: SimulatedRun, full: Iterable[ChannelUse]
) -> Question:
    """Return the question with this run's measurements in place of those before it; takes the same as `calibrated`."""
    slowness: dict[str, list[float]] = {}
    load_s = []
    for rank in range(facts.plan.workers):
        samples = facts.mean_s(rank, "samples")
        if samples > 0:
            measured_s = facts.mean_s(rank, "compute_s") + facts.mean_s(rank, "other_s")
            slower = ratio(measured_s / samples, played.sample_s[rank])
            slowness.setdefault(facts.plan.nodes[rank], []).append(slower)
            load_s.append(facts.mean_s(rank, "input_s") / samples)
    by_node = {name: fmean(each) for name, each in slowness.items()}
    return corrected(
        question,
        by_node,
        facts.plan.nodes[: facts.plan.workers],
        full,
        update=_slower_updates(facts, played) or median(by_node.values()),
        load_s=median(load_s),
    )


def _slower_updates(facts: MeasuredFacts, played: SimulatedRun) -> float | None:
    """Return measured over simulated seconds of applying a gradient on a typical server; None where none was traced."""
    measured_s: dict[int, list[float]] = {}
    for step in facts.trace.steps:
        for span in step.spans:
            if span.kind == "UPDATE":
                measured_s.setdefault(span.rank, []).append(span.end_s - span.start_s)
    ratios = [ratio(fmean(each), played.update_s.get(rank, 0.0)) for rank, each in measured_s.items()]
    return median(ratios) if ratios else None


def drifts_without(plan: Plan, question: Question, as_it_was_s: float, causes: Collection[str]) -> dict[str, float]:
    """Return simulated step seconds as it was and without each cause, of those that can be left out.

    Args:
        plan: of the run.
        question: that simulates like it.
        as_it_was_s: its simulated step.
        causes: keys as in `what_if`; what one worker waits for its own data is none of these, since a question knows
            one time for all.

    Raises:
        ClusterError, InternalError: as `drift_back`.
    """
    found = {AS_PLANNED: as_it_was_s}
    for name in causes:
        if name in _VARIANTS:
            found[name] = drift_back(plan, _VARIANTS[name](plan, question)).step_s
    return found


def _with_even_load(plan: Plan, question: Question) -> Question:
    """Let no worker's node be slower than that of a typical worker, so of two none slower than the faster."""
    workers = plan.nodes[: plan.workers]
    least = 1 / of_typical_s([1 / question.cluster.node(name).speed for name in workers])
    return with_nodes(
        question,
        lambda node: replace(node, speed=max(node.speed, least)) if node.name in workers else node,
    )


def _with_own_cores(plan: Plan, question: Question) -> Question:
    ranks = list(zip(plan.nodes[: plan.world_size], plan.threads, strict=True))
    return with_nodes(
        question, lambda node: with_own_cores(node, [threads for name, threads in ranks if name == node.name])
    )


_VARIANTS: Mapping[str, Callable[[Plan, Question], Question]] = {
    NETWORK: lambda plan, question: with_nodes(question, without_network),
    LATENCY: lambda plan, question: with_nodes(question, without_latency),
    EVEN_LOAD: _with_even_load,
    OWN_CORES: _with_own_cores,
    COMPUTE: lambda plan, question: with_profiles(question, without_computing),
    INPUT: lambda plan, question: with_profiles(question, without_input),
    UPDATE: lambda plan, question: with_profiles(question, without_updates),
}
"""What is taken away, as in `what_if`."""
