"""What a proposal would cost: estimated at once, or compiled and played in virtual time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nfold.core.plan import Prediction
from nfold.core.profile import Profile
from nfold.core.schedule import Schedule
from nfold.core.tasks import SpanKind
from nfold.core.trace import StepTrace
from nfold.planning.asynchronous.asynchronous_strategies import loads_s, play, predict
from nfold.planning.costs.estimate import estimate
from nfold.planning.costs.machines import paces_of, slowness_of
from nfold.planning.costs.peak_memory import peak_memory_bytes, working_bytes
from nfold.planning.costs.scenario import Scenario, TaskSeconds, scenario_of
from nfold.planning.inputs.facts import Facts, Proposal, commits
from nfold.planning.operator_parts.splitting import split_facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A proposal with its predicted seconds, bytes and memory."""

    strategy: str
    proposal: Proposal
    threads: tuple[int, ...]
    loads_s: tuple[float, ...]
    """Compute seconds per step of each rank at its own speed."""
    predicted: Prediction
    paces: tuple[float, ...] = ()
    """By which the order of each rank's cells is found; see `Plan.paces`."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """Of an asynchronous proposal: gradients by staleness in updates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulated(Candidate):
    """A synchronous proposal with its simulated step."""

    scenario: Scenario
    trace: StepTrace


def estimate_proposal(facts: Facts, strategy: str, proposal: Proposal) -> tuple[Candidate, float]:
    """Estimate a proposal without simulating it.

    Args:
        facts: about whole operators.
        strategy: that made the proposal.
        proposal: to be estimated.

    Returns:
        The candidate, and the seconds that its step cannot be shorter than; 0 where that is not known.
    """
    if proposal.asynchrony is None:
        return _synchronous(facts, strategy, proposal)
    threads = facts.threads(proposal.placement.world_size)
    played = play(facts, proposal, proposal.asynchrony, threads)
    candidate = Candidate(
        strategy=strategy,
        proposal=proposal,
        threads=threads,
        loads_s=loads_s(facts, proposal, threads),
        predicted=predict(facts, proposal, threads, played),
        ages=played.staleness,
    )
    return candidate, 0.0


def _synchronous(whole: Facts, strategy: str, proposal: Proposal) -> tuple[Candidate, float]:
    facts, threads, profile = _in_parts(whole, proposal)
    found = estimate(facts, proposal)
    compute_s = sum(found.loads_s) / len(proposal.placement.working)
    predicted = Prediction(
        step_s=found.step_s,
        sent_bytes_per_step=found.sent_bytes,
        peak_memory_bytes=peak_memory_bytes(facts, proposal, profile, found.working_bytes),
        compute_s=compute_s,
        exposed_communication_s=max(0.0, found.step_s - compute_s - profile.update.median_s),
    )
    candidate = Candidate(
        strategy=strategy,
        proposal=proposal,
        threads=threads,
        loads_s=found.loads_s,
        predicted=predicted,
        paces=_paces(whole, proposal, threads),
    )
    return candidate, found.least_step_s


def simulate_proposal(facts: Facts, strategy: str, proposal: Proposal) -> Simulated:
    """Compile a synchronous proposal and play it in virtual time; takes the same as `estimate_proposal`.

    Where ranks are not equally fast, cells are ordered by that if the step becomes no slower: to order them well is as
    hard as scheduling is, and each rank's cells in another order may by chance be in another's way.
    """
    alike = _simulated(facts, strategy, proposal, ())
    paces = _paces(facts, proposal, alike.threads)
    if not paces:
        return alike
    unlike = _simulated(facts, strategy, proposal, paces)
    return min(unlike, alike, key=lambda each: each.predicted.step_s)


def _paces(facts: Facts, proposal: Proposal, threads: tuple[int, ...]) -> tuple[float, ...]:
    """Return the ranks' paces; nothing where no chunk is on two ranks, so that orders do not depend on them."""
    if all(len(set(column)) == 1 for column in zip(*proposal.placement.owners.values(), strict=True)):
        return ()
    return paces_of(facts, threads, proposal.placement.num_chunks)


def _simulated(facts: Facts, strategy: str, proposal: Proposal, paces: tuple[float, ...]) -> Simulated:
    facts, threads, profile = _in_parts(facts, proposal)
    step = scenario_of(
        facts,
        proposal.placement,
        proposal.reductions,
        threads,
        windows=proposal.windows,
        paces=paces,
        commits=commits(facts, proposal),
    )
    slowness = slowness_of([facts.cluster.node(name) for name in step.nodes], threads)
    trace = step.play()
    return Simulated(
        strategy=strategy,
        proposal=proposal,
        threads=threads,
        loads_s=_loads_s(step.schedule, step.task_seconds, slowness),
        paces=paces,
        predicted=_prediction(facts, proposal, step.schedule, trace, profile),
        scenario=step,
        trace=trace,
    )


def _in_parts(facts: Facts, proposal: Proposal) -> tuple[Facts, tuple[int, ...], Profile]:
    """Return the facts about what a proposal places, the threads of its ranks, and the first rank's profile."""
    facts = split_facts(facts, proposal.splits)
    threads = facts.threads(proposal.placement.world_size)
    return facts, threads, facts.profiles[threads[0]]


def _loads_s(schedule: Schedule, seconds: TaskSeconds, slowness: Sequence[float]) -> tuple[float, ...]:
    return tuple(
        slower * sum(seconds[rank.rank, task.id] for task in rank.tasks if task.kind in ("F", "B"))
        for rank, slower in zip(schedule.ranks, slowness, strict=True)
    )


def _prediction(facts: Facts, proposal: Proposal, schedule: Schedule, trace: StepTrace, profile: Profile) -> Prediction:
    working = proposal.placement.working
    compute_s = _spent_s(trace, working, "F", "B") / len(working)
    step_s = max(trace.step_s)
    busy_s = _spent_s(trace, working[:1], "LOAD", "UPDATE")
    sizes = facts.chunk_sizes(proposal.placement.num_chunks)
    return Prediction(
        step_s=step_s,
        sent_bytes_per_step=schedule.sent_bytes,
        peak_memory_bytes=peak_memory_bytes(facts, proposal, profile, working_bytes(schedule, profile, sizes)),
        compute_s=compute_s,
        exposed_communication_s=max(0.0, step_s - compute_s - busy_s),
    )


def _spent_s(trace: StepTrace, ranks: Sequence[int], *kinds: SpanKind) -> float:
    return sum(span.end_s - span.start_s for span in trace.spans if span.rank in ranks and span.kind in kinds)
