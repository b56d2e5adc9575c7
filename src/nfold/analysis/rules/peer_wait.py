"""The worker that the others wait for, what that costs, and why it is slow.

Whether that is the run's verdict is decided in `analysis/reporting/verdict.py`.

In a synchronous step everybody waits for the last worker. What it works longer than a typical one is what the step
loses to it; the rest of its work every worker has too. The reason is looked for where its excess is, and in what its
node did meanwhile; the first that applies speaks:

    uneven stages       the plan gives it operators that take longer
    changing            it is no slower than the others over all steps: each time another one is last
    input               most of the excess is waiting for data
    more samples        the plan gives it > 1.1 times the work of a typical worker, and that delays it more than how
                        slowly it computes a sample
    quota               it was ready to run, but throttled > 0.1 of the time
    steal               the hypervisor took > 0.1 of a core
    neighbours          other programs took > 0.25 of a core more than on the others' nodes
    slower processor    none of these, and it took longer

Steal and neighbours are those of a whole machine; where nodes are emulated on one, they say nothing of any node.
"""

from dataclasses import dataclass
from statistics import fmean, median

from nfold.analysis.measured.breakdown import WorkerStep, peer_waits
from nfold.analysis.measured.measured_facts import MeasuredFacts
from nfold.analysis.measured.node_loads import THROTTLED
from nfold.analysis.resimulating.even_work import of_typical_s
from nfold.analysis.rules.finding import HALF, Finding
from nfold.analysis.rules.pipelines import busy_s, planned_work_s, uneven_stages
from nfold.core.text.units import percent, seconds
from nfold.core.trace import StepParts

UNEVEN = 0.25
"""Of a typical worker's work: equal ranks on a shared machine differ by about a tenth, so a quarter is no accident, and
making it even costs nothing, where computing faster does."""
MORE_SAMPLES = "more samples"
_CHANGING = "changing"
_MORE_SAMPLES = 1.1
_LESS_DATA = "Its part of each batch is its part of the data: let fewer samples live on it (--place auto)."
_STOLEN_CORES = 0.1
_NEIGHBOUR_CORES = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """The worker that comes last most often, against the typical other one; seconds per step."""

    rank: int
    share: float
    """Of the steps in which it is the last."""
    busy_s: float
    typical_s: float
    excess_s: float
    """What each step loses to whoever is last."""


def peer_wait(facts: MeasuredFacts) -> Finding | None:
    """Return the rank that the others wait for; None when nobody waits, as where staleness is not bounded."""
    straggler = find_straggler(facts)
    if straggler is None or straggler.excess_s <= 0:
        return None
    rank, lost_s = straggler.rank, straggler.excess_s
    node = facts.plan.nodes[rank]
    why, advice, because = _why(facts, straggler)
    last = f"rank {rank} comes last in {percent(straggler.share)} of the steps"
    works = f"; it works {seconds(straggler.busy_s)} a step, a typical worker {seconds(straggler.typical_s)}"
    evidence = f"{last}{works if why != _CHANGING else ''}: {because}"
    return Finding(
        kind="peer wait",
        verdict="peer wait",
        sub_cause=why,
        place=f"rank {rank} on {node}",
        lost_s=lost_s,
        value=lost_s * 1e3,
        evidence=evidence,
        head=f"Waiting for rank {rank} on {node} ({why}): each step of {seconds(facts.step_s)} loses {seconds(lost_s)} "
        f"to it, and {evidence}.",
        remedy=advice,
        next_command=f"nfold compare {{file}} -n {max(1, facts.plan.workers - 1)},{facts.plan.workers}",
        node=node,
    )


def find_straggler(facts: MeasuredFacts) -> Straggler | None:
    """Return the worker that is last most often; None where one works alone."""
    workers = facts.busy_workers
    if len(workers) < 2:
        return None
    is_asynchronous = facts.plan.asynchrony is not None
    last = [_busiest(step) if is_asynchronous else _last(step) for step in facts.steps]
    rank = max(sorted(set(last)), key=last.count)
    others = [other for other in workers if other != rank]
    return Straggler(
        rank=rank,
        share=last.count(rank) / len(last),
        busy_s=busy_s(facts, rank),
        typical_s=median(busy_s(facts, other) for other in others),
        excess_s=facts.parts.peer_wait_s
        if is_asynchronous
        else min(fmean(map(_excess_s, facts.steps)), _beside_the_usual_s(facts)),
    )


def typical_input_s(facts: MeasuredFacts) -> float:
    """Return how long a worker that nobody waits for waits for its data; of two the one that waits less."""
    return of_typical_s([facts.mean_s(rank, "input_s") for rank in facts.busy_workers])


def typical_compute_s(facts: MeasuredFacts) -> float:
    """Return the compute seconds of a worker that nobody waits for, mean over the steps; no less than an even part.

    Of two workers the faster one, since what the slower one needs beyond it is waited for. Where the plan gives them
    unlike parts, each counts as if it had as much as a typical one, or an even part of all if that is more: however
    work is divided, it has to be done.
    """
    planned_s = {} if facts.plan.asynchrony is not None else planned_work_s(facts)
    if not planned_s:
        return fmean(of_typical_s([parts.compute_s for parts in step]) for step in facts.steps)
    usual_s = max(of_typical_s(planned_s.values()), fmean(planned_s.values()))
    enough = {rank: usual_s / own_s for rank, own_s in planned_s.items() if own_s >= HALF * usual_s}
    return fmean(
        of_typical_s([parts.compute_s * enough[parts.rank] for parts in step if parts.rank in enough])
        for step in facts.steps
    )


def _beside_the_usual_s(facts: MeasuredFacts) -> float:
    """What a step lasts beyond what is counted for every worker; more than that cannot be due to one of them.

    What is typical of compute, of input and of all work together need not be one worker's, so the sum of the first two
    and of the excess over the third could be longer than the step.
    """
    parts = facts.parts
    usual_s = typical_compute_s(facts) + typical_input_s(facts) + parts.update_s + max(0.0, parts.other_s)
    return max(0.0, facts.step_s - parts.exposed_communication_s - usual_s)


def _last(step: WorkerStep) -> int:
    waits = peer_waits(step)
    return step[waits.index(min(waits))].rank


def _busiest(step: WorkerStep) -> int:
    """Who keeps the others at the bound: each of them waits for the clock of the slowest."""
    return max(step, key=_work_s).rank


def _excess_s(step: WorkerStep) -> float:
    """What the last worker of a step works longer than the typical other one."""
    last = _last(step)
    own = next(_work_s(parts) for parts in step if parts.rank == last)
    others = [_work_s(parts) for parts in step if parts.rank != last]
    return max(0.0, own - median(others)) if others else 0.0


def _work_s(parts: StepParts) -> float:
    return parts.step_s - parts.communication_s


def _why(facts: MeasuredFacts, straggler: Straggler) -> tuple[str, str, str]:
    """Return the sub-cause, what to do about it, and the numbers behind it."""
    uneven = uneven_stages(facts, straggler.rank, straggler.busy_s - straggler.typical_s)
    if uneven is not None:
        return uneven
    for rule in (_changing, _own_input, _more_samples, _quota, _steal, _neighbours):
        found = rule(facts, straggler)
        if found is not None:
            return found
    node = facts.plan.nodes[straggler.rank]
    known = "others took little of its processors"
    if straggler.rank not in facts.loads:
        known = "its processors were not watched"
    elif facts.cluster.is_emulated:
        known = "its limit did not hold it back, who else used this machine is not known of a node"
    elif any(load.node != node for load in facts.loads.values()):
        known = "others took not much more of its processors than of the other nodes'"
    remedy = _LESS_DATA if facts.plan.chunk_shares else f"Give {node} fewer chunks, or leave it out."
    return "slower processor", remedy, f"{known}, and it took longer"


def _changing(facts: MeasuredFacts, straggler: Straggler) -> tuple[str, str, str] | None:
    if straggler.busy_s - straggler.typical_s >= HALF * straggler.excess_s:
        return None
    limited = [load.throttled_share > THROTTLED for load in facts.loads.values() if load.rank in facts.busy_workers]
    if limited and all(limited):
        return (
            _CHANGING,
            "Give all of them more of a processor.",
            "over all steps none is much slower, but each is stopped by its processor limit at moments of its own",
        )
    return (
        _CHANGING,
        "See what else runs on the nodes: something disturbs now one, now another.",
        ("over all steps none is much slower, but each time another one is last"),
    )


def _own_input(facts: MeasuredFacts, straggler: Straggler) -> tuple[str, str, str] | None:
    own, typical = _own_and_typical(facts, straggler.rank, "input_s")
    if own - typical <= HALF * (straggler.busy_s - straggler.typical_s):
        return None
    numbers = f"it waits {seconds(own)} for data, the others {seconds(typical)}"
    return "input", "Bring its data nearer, or make the dataset's items cheaper there.", numbers


def _more_samples(facts: MeasuredFacts, straggler: Straggler) -> tuple[str, str, str] | None:
    own, typical = _own_and_typical(facts, straggler.rank, "samples")
    if typical <= 0 or own <= _MORE_SAMPLES * typical:
        return None
    planned = facts.plan.loads_s
    if planned[straggler.rank] <= _MORE_SAMPLES * median(
        planned[other] for other in facts.busy_workers if other != straggler.rank
    ):
        return None  # it was to be as fast with them as the others with theirs
    own_s, typical_s = _own_and_typical(facts, straggler.rank, "compute_s")
    if own_s * typical / own > typical_s * own / typical:
        return None  # how slowly it computes each of them does more
    return (
        MORE_SAMPLES,
        _LESS_DATA
        if facts.plan.chunk_shares
        else "Use a number of chunks that the workers can share equally (--chunks).",
        (f"it has {own:.0f} samples a step, the others {typical:.0f}"),
    )


def _quota(facts: MeasuredFacts, straggler: Straggler) -> tuple[str, str, str] | None:
    load = facts.loads.get(straggler.rank)
    if load is None or load.throttled_share <= THROTTLED:
        return None
    cores = facts.cluster.node(load.node).cores
    numbers = f"it is held back by its processor limit {percent(load.throttled_share)} of the time"
    less = "let fewer samples live on it (--place auto)" if facts.plan.chunk_shares else "give it fewer chunks"
    return "quota", f"Raise the limit of {load.node} ({cores:g} cores), or {less}.", numbers


def _steal(facts: MeasuredFacts, straggler: Straggler) -> tuple[str, str, str] | None:
    load = facts.loads.get(straggler.rank)
    if load is None or facts.cluster.is_emulated or load.steal_cores <= _STOLEN_CORES:
        return None
    numbers = f"the hypervisor takes {load.steal_cores:.1f} cores from {load.node}"
    return "steal", f"Move {load.node} to a host that is not shared, or leave it out.", numbers


def _neighbours(facts: MeasuredFacts, straggler: Straggler) -> tuple[str, str, str] | None:
    load = facts.loads.get(straggler.rank)
    if load is None or facts.cluster.is_emulated:
        return None
    others = [other.neighbour_cores for other in facts.loads.values() if other.node != load.node]
    if load.neighbour_cores - (median(others) if others else 0.0) <= _NEIGHBOUR_CORES:
        return None
    numbers = f"other programs take {load.neighbour_cores:.1f} cores of {load.node}"
    return "neighbours", f"See what else runs on {load.node}, or leave it out.", numbers


def _own_and_typical(facts: MeasuredFacts, rank: int, part: str) -> tuple[float, float]:
    others = [facts.mean_s(other, part) for other in facts.busy_workers if other != rank]
    return facts.mean_s(rank, part), median(others)
