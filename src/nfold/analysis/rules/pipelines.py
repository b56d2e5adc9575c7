"""What holds back a model whose operators lie on several ranks: stages that are unequal, and pipelines that run empty.

stage 0   F0 F1 F2 .  .  .  B0 .  B1 .  B2      . is the bubble: the first chunk has to come through,
stage 1   .  F0 F1 F2 .  B0 .  B1 .  B2 .       the last gradient has to come back
stage 2   .  .  F0 B0 F1 B1 F2 B2 .  .  .
"""

from nfold.analysis.measured.measured_facts import MeasuredFacts
from nfold.analysis.resimulating.even_work import of_typical_s
from nfold.analysis.resimulating.without_each_cause import AS_PLANNED, NETWORK
from nfold.analysis.rules.finding import HALF, Finding
from nfold.core.text.units import count, percent, seconds

UNEVEN_STAGES = "uneven stages"
NOTABLY = 1.1
"""Operators cannot be divided finer; a tenth is within what their times are known to."""


def bubble(facts: MeasuredFacts) -> Finding | None:
    """Return the wait for other stages, where it is most of what looks like communication.

    The same step is simulated with a network that takes no time; what its busiest rank still waits is the bubble.
    """
    variants, exposed_s = facts.what_ifs, facts.parts.exposed_communication_s
    if not facts.plan.placement.is_cut or not variants.get(AS_PLANNED) or NETWORK not in variants:
        return None
    without_network_s = variants[NETWORK] * facts.step_s / variants[AS_PLANNED]
    lost_s = min(exposed_s, without_network_s - _busiest_s(facts))
    if lost_s <= HALF * exposed_s:
        return None
    chunks, workers = facts.plan.chunks, facts.plan.workers
    busy = count(len(facts.busy_workers), "worker")
    evidence = (
        f"with {count(chunks, 'chunk')} of a batch under way on {busy}, the busiest one waits "
        f"{seconds(lost_s)} of each step for the first to arrive and the last to come back, on any network"
    )
    return Finding(
        kind="bubble",
        verdict="bubble",
        place="all workers",
        lost_s=exposed_s,
        value=lost_s * 1e3,
        evidence=evidence,
        head=f"Bubble, {percent(lost_s / facts.step_s)} of each step: {evidence}.",
        remedy="More chunks keep the workers busier, if the batch can be cut into more.",
        next_command=f"nfold train {{file}} -n {workers} --strategy {facts.plan.strategy} --chunks {2 * chunks}",
    )


def uneven_stages(facts: MeasuredFacts, rank: int, excess_s: float) -> tuple[str, str, str] | None:
    """Say that a rank is last since the plan gives it more work; None where that is not the reason.

    Args:
        facts: of the run.
        rank: that comes last.
        excess_s: what it works longer than a typical other one.
    """
    planned_s = planned_work_s(facts)
    if not facts.plan.placement.is_cut or rank not in planned_s:
        return None
    typical_s = of_typical_s([own_s for other, own_s in planned_s.items() if other != rank])
    extra = 1 - typical_s / planned_s[rank]
    if planned_s[rank] < NOTABLY * typical_s or extra * busy_s(facts, rank) < HALF * excess_s:
        return None
    own, even = planned_s[rank] / sum(planned_s.values()), 1 / len(planned_s)
    return (
        UNEVEN_STAGES,
        "Let nfold look for a more even division (--strategy auto), or use fewer workers.",
        f"the plan gives it {percent(own)} of all computing, an even part would be {percent(even)}",
    )


def planned_work_s(facts: MeasuredFacts) -> dict[int, float]:
    """Return what each worker was planned to compute in a step; those left out that were to compute nothing."""
    planned = facts.plan.loads_s
    return {rank: planned[rank] for rank in facts.busy_workers if rank < len(planned) and planned[rank] > 0}


def busy_s(facts: MeasuredFacts, rank: int) -> float:
    """Return the seconds of a mean step in which a rank did not wait for messages."""
    return facts.mean_s(rank, "step_s") - facts.mean_s(rank, "communication_s")


def _busiest_s(facts: MeasuredFacts) -> float:
    return max(busy_s(facts, rank) for rank in range(facts.plan.workers))
