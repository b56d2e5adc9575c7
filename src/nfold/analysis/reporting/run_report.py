"""Plan + Trace + Cluster -> Report: how fast, what held it back, what would help, how far the prediction was off."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from nfold.analysis.measured.breakdown import (
    WorkerStep,
    busiest_sent_bytes,
    samples_per_s,
    sent_bytes_per_step,
    step_quantiles,
    worker_steps,
)
from nfold.analysis.measured.channel_use import bus_bandwidth_bytes_per_s
from nfold.analysis.measured.ledger import ledger
from nfold.analysis.measured.link_regime import since_change
from nfold.analysis.measured.measured_facts import MeasuredFacts, gather
from nfold.analysis.measured.reduction_splits import reduction_splits
from nfold.analysis.reporting.accepted_advice import is_accepted
from nfold.analysis.reporting.resimulation import WhatIfFacts, simulate_changes
from nfold.analysis.reporting.verdict import main_finding, next_command, plan_again, verdict
from nfold.analysis.rules.causes import NETWORK_KINDS, findings, ranked_causes
from nfold.analysis.rules.finding import Finding
from nfold.core.cluster import Cluster
from nfold.core.plan import Plan
from nfold.core.report import PredictedStep, Report, Verdict
from nfold.core.trace import Trace
from nfold.planning.inputs.facts import Facts as Question

WARM_UP_STEPS = 5
"""The first steps allocate, connect and fill caches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a run came to, beside its time."""

    alone_samples_per_s: float | None = None
    """Throughput of plain single-device runs, one with the whole of each node in use, together; when None, each
    worker's own useful seconds stand in for it."""
    final_loss: float | None = None
    """Of the last step or epoch."""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """Of the last evaluation."""
    program: str = "FILE.py"
    """How the user named the program, as a shell takes it: for the next command."""


def report(
    plan: Plan,
    trace: Trace,
    cluster: Cluster,
    result: Result,
    *,
    question: Question | None = None,
    skip: int = WARM_UP_STEPS,
) -> Report:
    """Return the report of a run; where links changed on the way, of the time since then.

    Args:
        plan: what was meant to happen.
        trace: what happened.
        cluster: where, with the links as they were in the end.
        result: what came of it.
        question: what was planned from, to simulate again; without it nothing is said of what would help.
        skip: steps left out as warm-up.

    Raises:
        ClusterError: two ranks that talk have no link between them, by the question.
        InternalError: the trace holds no step, or the plan cannot be played to its end.
    """
    facts = gather(plan, since_change(trace), cluster, skip)
    what_ifs = simulate_changes(facts, question) if question is not None else WhatIfFacts(facts=facts)
    return _report(what_ifs, question, result, skip, worker_steps(trace, 0))


def _report(
    what_ifs: WhatIfFacts, question: Question | None, result: Result, skip: int, whole: Sequence[WorkerStep]
) -> Report:
    facts, plan, trace = what_ifs.facts, what_ifs.facts.plan, what_ifs.facts.trace
    step_s, throughput = step_quantiles(trace, skip), samples_per_s(trace, skip)
    found = findings(facts)
    main = main_finding(found)
    return Report(
        strategy=plan.strategy,
        world_size=plan.world_size,
        workers=plan.workers,
        servers=plan.servers,
        chunks=plan.chunks,
        batch_size=plan.batch_size,
        num_steps=_num_steps(facts),
        step_s=step_s,
        samples_per_s=throughput,
        efficiency=_efficiency(facts, throughput, result.alone_samples_per_s),
        sent_bytes_per_step=sent_bytes_per_step(trace, plan.batch_size),
        bus_bandwidth_bytes_per_s=bus_bandwidth_bytes_per_s(plan, trace, facts.cluster),
        time=facts.parts,
        peak_rss_bytes=max((usage.peak_rss_bytes for usage in trace.usage), default=0),
        worker_rss_bytes=_peak_rss_bytes(trace, "worker") or 0,
        server_rss_bytes=_peak_rss_bytes(trace, "server"),
        cpu_cores=_cpu_cores(trace),
        final_loss=result.final_loss,
        metrics=dict(result.metrics),
        verdict=_dated(verdict(main, what_ifs.possible_gains, plan.strategy, result.program), trace.since_step),
        causes=ranked_causes(found, facts.step_s),
        predicted=_predicted(what_ifs, step_s.p50),
        since_step=trace.since_step,
        ledger=ledger(
            whole,
            trace.ledger,
            _network_place(found),
            is_asynchronous=trace.is_asynchronous,
            held_share=_held_share(facts),
        ),
        next_command=_next_command(main, what_ifs, question).replace("{file}", result.program),
        staleness=dict(trace.staleness),
        busiest_sent_bytes_per_step=busiest_sent_bytes(trace, plan.batch_size),
        reductions=reduction_splits(trace, facts.steps[0][0].step),
        loads=tuple(facts.loads.values()),
    )


def _next_command(main: Finding, what_ifs: WhatIfFacts, question: Question | None) -> str:
    """Return a command that nfold would accept, by all that the question knows; empty if there is none."""
    plan = what_ifs.facts.plan
    command = next_command(main, what_ifs.possible_gains, plan, what_ifs.facts.cluster)
    if plan.chunk_shares and (" -n " in command or "nfold compare" in command):
        return plan_again(plan) if plan.world_size > 1 else ""  # its ranks are the nodes that hold data
    was_planned = what_ifs.possible_gains is not None and any(
        command == each.gain.command for each in what_ifs.possible_gains.tried
    )
    if question is None or not command or was_planned:
        return command
    tried = (command, plan_again(plan) if plan.world_size > 1 else "")
    return next((each for each in tried if each and is_accepted(each, question)), "")


def _num_steps(facts: MeasuredFacts) -> int:
    """Count the steps that were played from the first one that is judged on, kept or not."""
    if facts.trace.num_steps is None:
        return len(facts.steps)
    first_played = min(parts.step for parts in facts.trace.parts)
    return facts.trace.num_steps - (facts.steps[0][0].step - first_played)


def _held_share(facts: MeasuredFacts) -> float:
    """Of what workers wait, what they wait for each other."""
    waited_s = facts.parts.peer_wait_s + facts.parts.exposed_communication_s
    return facts.parts.peer_wait_s / waited_s if waited_s > 0 else 0.0


def _network_place(found: Sequence[Finding]) -> str:
    """What communication waits for: a link, a server, a rank whose messages take its processor."""
    return next((finding.place for finding in found if finding.kind in NETWORK_KINDS), "")


def _efficiency(facts: MeasuredFacts, throughput: float, alone_samples_per_s: float | None) -> float:
    """Throughput over what the nodes would do alone, all together; workers of one node share one machine."""
    if alone_samples_per_s:
        return throughput / alone_samples_per_s
    useful = [p.compute_s + p.input_s + p.update_s for step in facts.steps for p in step]
    return fmean(useful) / facts.step_s if facts.step_s > 0 else 1.0


def _dated(found: Verdict, since_step: int) -> Verdict:
    """Say from when on a verdict holds."""
    if not since_step:
        return found
    return replace(found, text=f"{found.text} (Of the steps from {since_step + 1} on: the links changed before.)")


def _predicted(what_ifs: WhatIfFacts, measured_s: float) -> PredictedStep:
    """Return what the plan promised; where links changed since, what it would promise on those."""
    facts, step_s = what_ifs.facts, what_ifs.facts.plan.predicted.step_s
    if facts.trace.since_step and what_ifs.predicted_step_s is not None:
        step_s = what_ifs.predicted_step_s
    return PredictedStep(
        step_s=step_s,
        sent_bytes_per_step=facts.plan.predicted.sent_bytes_per_step,
        step_error=(step_s - measured_s) / measured_s if measured_s > 0 else 0.0,
        time=what_ifs.predicted_time,
    )


def _peak_rss_bytes(trace: Trace, role: str) -> int | None:
    return max((usage.peak_rss_bytes for usage in trace.usage if usage.role == role), default=None)


def _cpu_cores(trace: Trace) -> float:
    wall_s = max((usage.wall_s for usage in trace.usage), default=0.0)
    return sum(usage.cpu_s for usage in trace.usage) / wall_s if wall_s > 0 else 0.0
