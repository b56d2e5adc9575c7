"""Simulates what the strategies propose, keeps the fastest that fits, and why the others lost."""

from dataclasses import dataclass

from nfold.core.plan import Plan, Prediction, Rejected
from nfold.core.profile import Profile
from nfold.core.schedule import Schedule
from nfold.core.trace import StepTrace
from nfold.errors import PlanError
from nfold.planning.asynchronous import ASYNCHRONOUS, NOT_COMPARED, loads_s, predict
from nfold.planning.costs import peak_memory_bytes, task_seconds
from nfold.planning.facts import Facts, Proposal
from nfold.planning.schedule import compile_schedule
from nfold.planning.strategies import AUTO, SERVING, STRATEGIES, Strategy, named
from nfold.simulation import simulate

TIE = 1.01
"""Step times that differ by less are a tie."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A proposal, and what it would cost."""

    strategy: str
    proposal: Proposal
    threads: tuple[int, ...]
    loads_s: tuple[float, ...]
    """Compute seconds per step of each rank."""
    predicted: Prediction


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulated(Candidate):
    """A synchronous proposal with everything that the simulator said of it."""

    schedule: Schedule
    seconds: dict[tuple[int, int], float]
    trace: StepTrace


def plan(facts: Facts, strategy: str = AUTO) -> Plan:
    """Return the plan of a strategy, or the one predicted fastest.

    Args:
        facts: program, machines and wishes.
        strategy: a name of STRATEGY_NAMES; `auto` never predicts slower than any that it could have taken.

    Raises:
        PlanError: the strategy is unknown, cannot be used here, or fits no node's memory.
    """
    check(facts, strategy)
    chosen = None if strategy == AUTO else named(strategy)
    best: list[Candidate] = []
    rejected: list[Rejected] = []
    for each in STRATEGIES:
        objection = _objection(each, facts, wanted=each is chosen)
        if objection:
            rejected.append(Rejected(strategy=each.name, predicted=None, why=objection))
            continue
        candidates = [_candidate(facts, each.name, proposal) for proposal in each.propose(facts)]
        candidate = _fastest(candidates)
        too_large = _memory_objection(facts, candidate)
        if too_large:
            rejected.append(Rejected(strategy=each.name, predicted=candidate.predicted, why=too_large))
        else:
            best.append(candidate)
    winner = _winner(best, rejected, chosen)
    losers = [_lost(candidate, winner, forced=chosen is not None) for candidate in best if candidate is not winner]
    return _to_plan(facts, winner, tuple([*losers, *rejected]))


def check(facts: Facts, strategy: str) -> None:
    """Refuse wishes that make no sense, with their numbers.

    Raises:
        PlanError: see the message.
    """
    check_ranks(strategy, facts.workers, facts.servers)
    check_batch(facts.workers, facts.chunks, facts.batch_size)
    chunks = facts.chunks or facts.workers
    if chunks > 1 and facts.graph.indivisible:
        raise PlanError(
            f"the batch cannot be cut into {chunks} chunks: {facts.graph.indivisible}. Use -n 1, --chunks 1."
        )


def check_batch(workers: int, chunks: int | None, batch_size: int) -> None:
    """Refuse cuts of a batch that make no sense whatever the model is.

    Raises:
        PlanError: see the message.
    """
    chunks = chunks or workers
    if chunks < workers:
        raise PlanError(
            f"{workers} workers cannot share {chunks} chunks. Use --chunks {workers} or more, or -n {chunks}."
        )
    if chunks > batch_size:
        raise PlanError(
            f"a batch of {batch_size} samples cannot be cut into {chunks} chunks. Use a batch size of at least "
            f"{chunks}, or fewer workers or chunks."
        )


def check_ranks(strategy: str, workers: int, servers: int) -> None:
    """Refuse numbers of ranks that make no sense whatever the program is.

    Raises:
        PlanError: see the message.
    """
    if strategy != AUTO:
        named(strategy)
    if workers < 1:
        raise PlanError(f"-n {workers}: a job needs at least 1 worker")
    if not 0 <= servers <= workers:
        raise PlanError(
            f"--servers {servers} with {workers} workers: more servers than workers cannot help, since "
            f"{workers} servers already have one link for each worker's. Use --servers 0 to {workers}."
        )
    if servers and strategy not in (AUTO, *SERVING):
        *most, last = SERVING
        raise PlanError(f"--servers {servers} needs --strategy {', '.join(most)} or {last}, not {strategy}")
    if strategy == "single" and workers > 1:
        raise PlanError(f"--strategy single runs on one worker, but -n asks for {workers}. Use ring or ps.")


def _objection(strategy: Strategy, facts: Facts, *, wanted: bool) -> str | None:
    objection = strategy.accepts(facts)
    if objection and wanted:
        raise PlanError(f"--strategy {strategy.name}: {objection}")
    if not wanted and strategy.name in ASYNCHRONOUS:
        return objection or NOT_COMPARED
    return objection


def _candidate(facts: Facts, strategy: str, proposal: Proposal) -> Candidate:
    if proposal.asynchrony is None:
        return simulate_proposal(facts, strategy, proposal)
    threads = facts.threads(proposal.placement.world_size)
    return Candidate(
        strategy=strategy,
        proposal=proposal,
        threads=threads,
        loads_s=loads_s(facts, proposal, threads),
        predicted=predict(facts, proposal, proposal.asynchrony, threads),
    )


def simulate_proposal(facts: Facts, strategy: str, proposal: Proposal) -> Simulated:
    """Compile a synchronous proposal and play it in virtual time."""
    threads = facts.threads(proposal.placement.world_size)
    profiles = tuple(facts.profiles[count] for count in threads)
    operator_seconds = _operator_seconds(facts, profiles[0], proposal)
    schedule = compile_schedule(
        facts.graph,
        proposal.placement,
        proposal.reductions,
        batch_size=facts.batch_size,
        operator_seconds=operator_seconds,
    )
    seconds = task_seconds(schedule, facts.graph, profiles, facts.batch_size)
    nodes = facts.nodes[: proposal.placement.world_size]
    trace = simulate(schedule, task_seconds=seconds, cluster=facts.cluster, nodes=nodes, threads=threads)
    return Simulated(
        strategy=strategy,
        proposal=proposal,
        threads=threads,
        schedule=schedule,
        seconds=seconds,
        trace=trace,
        loads_s=_loads_s(schedule, seconds),
        predicted=_prediction(facts, proposal, schedule, trace, profiles[0]),
    )


def _loads_s(schedule: Schedule, seconds: dict[tuple[int, int], float]) -> tuple[float, ...]:
    return tuple(
        sum(seconds[rank.rank, task.id] for task in rank.tasks if task.kind in ("F", "B")) for rank in schedule.ranks
    )


def _operator_seconds(facts: Facts, profile: Profile, proposal: Proposal) -> dict[str, tuple[float, float]] | None:
    chunk_size = facts.batch_size / proposal.placement.num_chunks
    seconds = profile.operators_s(chunk_size)
    known = all(operator.name in seconds for operator in facts.graph.operators)
    return seconds if known else None


def _prediction(facts: Facts, proposal: Proposal, schedule: Schedule, trace: StepTrace, profile: Profile) -> Prediction:
    computing = [
        sum(span.end_s - span.start_s for span in trace.spans if span.rank == rank and span.kind in ("F", "B"))
        for rank in range(proposal.workers)
    ]
    compute_s = sum(computing) / len(computing)
    step_s = max(trace.step_s)
    busy = sum(span.end_s - span.start_s for span in trace.spans if span.rank == 0 and span.kind in ("LOAD", "UPDATE"))
    return Prediction(
        step_s=step_s,
        sent_bytes_per_step=schedule.sent_bytes,
        peak_memory_bytes=peak_memory_bytes(facts, proposal, profile),
        compute_s=compute_s,
        exposed_communication_s=max(0.0, step_s - compute_s - busy),
    )


def _fastest(candidates: list[Candidate]) -> Candidate:
    """The first of those that nobody beats: a strategy proposes the simplest first, and 1 % is less than any error."""
    least = min(candidate.predicted.step_s for candidate in candidates)
    return next(candidate for candidate in candidates if candidate.predicted.step_s <= TIE * least)


def _memory_objection(facts: Facts, candidate: Candidate) -> str | None:
    """Say which node would run out of memory, with the numbers."""
    for node in facts.cluster.nodes:
        needs = [
            size
            for size, name in zip(candidate.predicted.peak_memory_bytes, facts.nodes, strict=False)
            if name == node.name
        ]
        if sum(needs) > node.memory_bytes:
            return (
                f"{len(needs)} ranks need {sum(needs) / 2**30:.1f} GiB on {node.name}, which has "
                f"{node.memory_bytes / 2**30:.1f} GiB. Use more --chunks, fewer workers, or another node."
            )
    return None


def _winner(best: list[Candidate], rejected: list[Rejected], chosen: Strategy | None) -> Candidate:
    if chosen is not None:
        for candidate in best:
            if candidate.strategy == chosen.name:
                return candidate
        why = next(loser.why for loser in rejected if loser.strategy == chosen.name)
        raise PlanError(f"--strategy {chosen.name}: {why}")
    if not best:
        reasons = "; ".join(f"{loser.strategy}: {loser.why}" for loser in rejected)
        raise PlanError(f"no strategy can run here. {reasons}")
    return min(best, key=lambda candidate: candidate.predicted.step_s)


def _lost(candidate: Candidate, winner: Candidate, *, forced: bool) -> Rejected:
    return Rejected(
        strategy=candidate.strategy, predicted=candidate.predicted, why=_comparison(candidate, winner, forced)
    )


def _comparison(candidate: Candidate, winner: Candidate, forced: bool) -> str:
    mine, best = candidate.predicted.step_s, winner.predicted.step_s
    if max(mine, best) <= TIE * min(mine, best):
        return f"a tie with {winner.strategy}"
    if forced and mine < best:
        return f"predicted {_times(best, mine)} as fast, but {winner.strategy} was asked for"
    slower = f"predicted {_times(mine, best)} the step time of {winner.strategy}"
    workers, fewer = candidate.proposal.workers, winner.proposal.workers
    if workers <= fewer or mine < best:
        return slower
    waiting = candidate.predicted.exposed_communication_s / mine
    return f"{slower} on {fewer} of {workers} workers, since {waiting:.0%} of it would be waiting for messages"


def _times(longer: float, shorter: float) -> str:
    return f"{longer / shorter:.2f}x" if shorter > 0 else "many times"


def _to_plan(facts: Facts, candidate: Candidate, rejected: tuple[Rejected, ...]) -> Plan:
    proposal = candidate.proposal
    return Plan(
        strategy=candidate.strategy,
        chunks=proposal.placement.num_chunks,
        batch_size=facts.batch_size,
        workers=proposal.workers,
        servers=proposal.servers,
        nodes=facts.nodes[: proposal.placement.world_size],
        threads=candidate.threads,
        placement=proposal.placement,
        reductions=proposal.reductions,
        loads_s=candidate.loads_s,
        predicted=candidate.predicted,
        rejected=rejected,
        asynchrony=proposal.asynchrony,
    )
