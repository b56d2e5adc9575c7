"""Estimates what the strategies propose, simulates what may be the fastest, keeps that, and why the others lost.

A link cannot carry its bytes, and a rank cannot compute its cells, in less than so many seconds. What needs longer by
that alone than another proposal takes cannot win and keeps its estimate; the choice is the same as if all were
simulated. On many ranks the messages of a step are too many to be simulated, and nothing is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nfold.core.placement import chunk_sizes
from nfold.core.plan import Plan, Prediction, Rejected
from nfold.core.profile import Profile
from nfold.core.schedule import Schedule
from nfold.core.trace import StepTrace
from nfold.errors import PlanError
from nfold.planning.asynchronous import ASYNCHRONOUS, NOT_COMPARED, loads_s, predict
from nfold.planning.collecting import without_collecting
from nfold.planning.costs import task_seconds
from nfold.planning.estimate import estimate
from nfold.planning.facts import Facts, Proposal
from nfold.planning.memory import peak_memory_bytes, working_bytes
from nfold.planning.schedule import compile_schedule
from nfold.planning.splitting import split_facts
from nfold.planning.strategies import AUTO, STRATEGIES, Strategy, named
from nfold.planning.verdicts import TIE, comparison, memory_objection, undominated
from nfold.planning.wishes import check
from nfold.simulation import simulate

MANY_RANKS = 16
"""From so many on, proposals are estimated: the simulator takes a minute for the messages of 64 servers."""
MOST_CANDIDATES = 4
"""Proposals of a strategy that may win, the best by estimate; of strategies that were not asked for, one."""


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


@without_collecting()
def plan(facts: Facts, strategy: str = AUTO, *, among: Sequence[Strategy] = STRATEGIES) -> Plan:
    """Return the plan of a strategy, or the one predicted fastest.

    Args:
        facts: program, machines and wishes.
        strategy: a name of STRATEGY_NAMES; `auto` never predicts slower than any that it could have taken.
        among: what is looked at; the plan says why it is better than the others of them.

    Raises:
        PlanError: the strategy is unknown, cannot be used here, or fits no node's memory.
    """
    check(facts, strategy)
    chosen = None if strategy == AUTO else named(strategy)
    portfolio = _Portfolio(facts, among)
    for each in among:
        objection = _objection(each, facts, wanted=each is chosen)
        if objection:
            portfolio.rejected.append(Rejected(strategy=each.name, predicted=None, why=objection))
        else:
            portfolio.add(each, MOST_CANDIDATES if chosen in (None, each) else 1)
    portfolio.settle(chosen)
    winner = portfolio.winner(chosen)
    return _to_plan(
        facts, winner, portfolio.is_undominated(winner), portfolio.losers(winner, forced=chosen is not None)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Estimated:
    """A proposal before it is simulated."""

    index: int
    """In the order of its strategy, which proposes the simplest first."""
    candidate: Candidate
    least_step_s: float
    objection: str | None
    """Why it seems not to fit the memory."""

    @property
    def promise(self) -> tuple[bool, float, int]:
        """Smaller is more promising."""
        return self.objection is not None, self.candidate.predicted.step_s, self.index


@dataclass(slots=True)
class _Line:
    """The proposals of a strategy: those that wait, the most promising first, and what became of the others."""

    strategy: str
    most: int
    waiting: list[_Estimated]
    fitting: dict[int, Candidate] = field(default_factory=dict)
    too_large: list[tuple[Candidate, str]] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether one more is looked at."""
        return bool(self.waiting) and len(self.fitting) < self.most

    @property
    def best(self) -> Candidate | None:
        """The fastest that fits, if there is one."""
        return _fastest([self.fitting[index] for index in sorted(self.fitting)]) if self.fitting else None


class _Portfolio:
    """All candidates of a question that fit the memory, and why others are none."""

    def __init__(self, facts: Facts, among: Sequence[Strategy]) -> None:
        self._facts, self._among = facts, among
        self._estimated: dict[object, tuple[Candidate, float]] = {}
        self._simulated: dict[object, tuple[tuple[float, ...], Prediction]] = {}
        """Without schedules and traces, which are large."""
        self._lines: list[_Line] = []
        self._fitting: list[Candidate] = []
        self._best: list[Candidate] = []
        self.rejected: list[Rejected] = []

    def add(self, strategy: Strategy, most: int) -> None:
        """Estimate all proposals of a strategy, of which so many that fit the memory become candidates."""
        estimated = (
            self._estimate(index, each, strategy.name) for index, each in enumerate(strategy.propose(self._facts))
        )
        self._lines.append(_Line(strategy.name, most, sorted(estimated, key=lambda each: each.promise)))

    def _estimate(self, index: int, proposal: Proposal, strategy: str) -> _Estimated:
        """Estimate a proposal, unless another strategy made it too."""
        key = _key(proposal)
        if key not in self._estimated:
            self._estimated[key] = _estimated(self._facts, strategy, proposal)
        candidate, least_step_s = self._estimated[key]
        candidate = replace(candidate, strategy=strategy)
        objection = memory_objection(self._facts, candidate.predicted)
        return _Estimated(index=index, candidate=candidate, least_step_s=least_step_s, objection=objection)

    def settle(self, chosen: Strategy | None) -> None:
        """Simulate what may win, the most promising of all strategies first; the others keep their estimates."""
        best_s = math.inf
        while lines := [line for line in self._lines if line.is_open]:
            wanted = [line for line in lines if chosen is not None and line.strategy == chosen.name] or lines
            line = min(wanted, key=lambda each: each.waiting[0].promise)
            candidate = self._settled(line.waiting[0], best_s)
            objection = memory_objection(self._facts, candidate.predicted)
            if objection:
                line.too_large.append((candidate, objection))
            else:
                line.fitting[line.waiting[0].index] = candidate
                if chosen is None or line.strategy == chosen.name:
                    best_s = min(best_s, candidate.predicted.step_s)
            del line.waiting[0]
        self._note()

    def _settled(self, estimated: _Estimated, best_s: float) -> Candidate:
        """Simulate a candidate that may be faster than the best so far, unless another strategy made it too."""
        candidate = estimated.candidate
        proposal = candidate.proposal
        if proposal.asynchrony or proposal.placement.world_size >= MANY_RANKS or estimated.least_step_s > TIE * best_s:
            return candidate
        key = _key(proposal)
        if key not in self._simulated:
            played = simulate_proposal(self._facts, candidate.strategy, proposal)
            self._simulated[key] = played.loads_s, played.predicted
        loads, prediction = self._simulated[key]
        return replace(candidate, loads_s=loads, predicted=prediction)

    def _note(self) -> None:
        """Sort out what fits; of what does not, say of the fastest what it lacks."""
        for line in self._lines:
            self._fitting += [line.fitting[index] for index in sorted(line.fitting)]
            if line.best is not None:
                self._best.append(line.best)
            if line.too_large:
                candidate, why = min(line.too_large, key=lambda each: each[0].predicted.step_s)
                self.rejected.append(_rejected(candidate, why))
        order = [strategy.name for strategy in self._among]
        self.rejected.sort(key=lambda loser: order.index(loser.strategy))

    def winner(self, chosen: Strategy | None) -> Candidate:
        """Return the best of the strategy that was asked for, or of all."""
        if chosen is not None:
            for candidate in self._best:
                if candidate.strategy == chosen.name:
                    return candidate
            why = next(loser.why for loser in self.rejected if loser.strategy == chosen.name)
            raise PlanError(f"--strategy {chosen.name}: {why}")
        if not self._best:
            reasons = "; ".join(f"{loser.strategy}: {loser.why}" for loser in self.rejected)
            raise PlanError(f"no strategy can run here. {reasons}")
        return min(self._best, key=lambda candidate: candidate.predicted.step_s)

    def is_undominated(self, candidate: Candidate) -> bool:
        """Whether nothing simulated is as good in time, bytes and memory, and better in one."""
        return undominated([candidate.predicted, *(each.predicted for each in self._fitting)])[0]

    def losers(self, winner: Candidate, *, forced: bool) -> tuple[Rejected, ...]:
        """Return the best of every other strategy, then what else is undominated, then what could not be."""
        best = [candidate for candidate in self._best if candidate is not winner]
        shown = {_figures(candidate) for candidate in (winner, *best)}
        others: list[Candidate] = []
        for candidate in self._fitting:
            if _figures(candidate) not in shown and self.is_undominated(candidate):
                shown.add(_figures(candidate))
                others.append(candidate)
        won = winner.predicted, winner.proposal
        found = [
            _rejected(
                each,
                comparison((each.predicted, each.proposal), won, winner.strategy, forced=forced),
                is_undominated=self.is_undominated(each),
            )
            for each in (*best, *others)
        ]
        return (*found, *self.rejected)


def most_promising(facts: Facts, proposals: Sequence[Proposal], most: int) -> list[Proposal]:
    """Return at most so many proposals, the fastest by estimate."""
    if len(proposals) <= most:
        return list(proposals)
    return [proposals[index] for index in _by_estimate(facts, proposals)[:most]]


def _by_estimate(facts: Facts, proposals: Sequence[Proposal]) -> list[int]:
    estimates = [estimate(split_facts(facts, proposal.splits), proposal).step_s for proposal in proposals]
    return sorted(range(len(proposals)), key=lambda index: (estimates[index], index))


def _figures(candidate: Candidate) -> tuple[float, int, tuple[int, ...]]:
    predicted = candidate.predicted
    return predicted.step_s, predicted.sent_bytes_per_step, predicted.peak_memory_bytes


def _rejected(candidate: Candidate, why: str, *, is_undominated: bool = False) -> Rejected:
    return Rejected(
        strategy=candidate.strategy,
        chunks=candidate.proposal.placement.num_chunks,
        predicted=candidate.predicted,
        why=why,
        is_undominated=is_undominated,
    )


def _objection(strategy: Strategy, facts: Facts, *, wanted: bool) -> str | None:
    objection = strategy.accepts(facts)
    if objection and wanted:
        raise PlanError(f"--strategy {strategy.name}: {objection}")
    if not wanted and strategy.name in ASYNCHRONOUS:
        return objection or NOT_COMPARED
    return objection


def _key(proposal: Proposal) -> object:
    """What makes proposals the same, whichever strategy makes them."""
    splits = tuple(proposal.splits.items())
    return tuple(proposal.placement.owners.values()), proposal.reductions, proposal.asynchrony, splits


def _estimated(facts: Facts, strategy: str, proposal: Proposal) -> tuple[Candidate, float]:
    """Return what a proposal would cost about, and what its step cannot be shorter than."""
    if proposal.asynchrony is None:
        return _synchronous(facts, strategy, proposal)
    threads = facts.threads(proposal.placement.world_size)
    candidate = Candidate(
        strategy=strategy,
        proposal=proposal,
        threads=threads,
        loads_s=loads_s(facts, proposal, threads),
        predicted=predict(facts, proposal, proposal.asynchrony, threads),
    )
    return candidate, 0.0


def estimate_proposal(facts: Facts, strategy: str, proposal: Proposal) -> Candidate:
    """Estimate what a synchronous proposal would cost; takes the same as `simulate_proposal`."""
    return _synchronous(facts, strategy, proposal)[0]


def _synchronous(whole: Facts, strategy: str, proposal: Proposal) -> tuple[Candidate, float]:
    facts, threads, profile = _in_parts(whole, proposal)
    found = estimate(facts, proposal)
    compute_s = sum(found.loads_s[: proposal.workers]) / proposal.workers
    predicted = Prediction(
        step_s=found.step_s,
        sent_bytes_per_step=found.sent_bytes,
        peak_memory_bytes=peak_memory_bytes(facts, proposal, profile, found.working_bytes),
        compute_s=compute_s,
        exposed_communication_s=max(0.0, found.step_s - compute_s - profile.update.median_s),
    )
    candidate = Candidate(
        strategy=strategy, proposal=proposal, threads=threads, loads_s=found.loads_s, predicted=predicted
    )
    return candidate, found.least_step_s


def simulate_proposal(facts: Facts, strategy: str, proposal: Proposal) -> Simulated:
    """Compile a synchronous proposal and play it in virtual time.

    Args:
        facts: about whole operators.
        strategy: that made the proposal.
        proposal: which may have operators in parts.
    """
    facts, threads, profile = _in_parts(facts, proposal)
    schedule = compile_schedule(
        facts.graph,
        proposal.placement,
        proposal.reductions,
        batch_size=facts.batch_size,
        operator_seconds=_operator_seconds(facts, profile, proposal),
    )
    seconds = task_seconds(schedule, facts.graph, tuple(facts.profiles[count] for count in threads), facts.batch_size)
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
        predicted=_prediction(facts, proposal, schedule, trace, profile),
    )


def _in_parts(facts: Facts, proposal: Proposal) -> tuple[Facts, tuple[int, ...], Profile]:
    """Return the facts about what a proposal places, the threads of its ranks, and the first rank's profile."""
    facts = split_facts(facts, proposal.splits)
    threads = facts.threads(proposal.placement.world_size)
    return facts, threads, facts.profiles[threads[0]]


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
    computing = (
        span.end_s - span.start_s for span in trace.spans if span.kind in ("F", "B") and span.rank < proposal.workers
    )
    compute_s = sum(computing) / proposal.workers
    step_s = max(trace.step_s)
    busy = sum(span.end_s - span.start_s for span in trace.spans if span.rank == 0 and span.kind in ("LOAD", "UPDATE"))
    sizes = chunk_sizes(facts.batch_size, proposal.placement.num_chunks)
    return Prediction(
        step_s=step_s,
        sent_bytes_per_step=schedule.sent_bytes,
        peak_memory_bytes=peak_memory_bytes(facts, proposal, profile, working_bytes(schedule, profile, sizes)),
        compute_s=compute_s,
        exposed_communication_s=max(0.0, step_s - compute_s - busy),
    )


def _fastest(candidates: list[Candidate]) -> Candidate:
    """The first of those that nobody beats: a strategy proposes the simplest first, and 1 % is less than any error."""
    least = min(candidate.predicted.step_s for candidate in candidates)
    return next(candidate for candidate in candidates if candidate.predicted.step_s <= TIE * least)


def _to_plan(facts: Facts, candidate: Candidate, is_undominated: bool, rejected: tuple[Rejected, ...]) -> Plan:
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
        splits=dict(proposal.splits),
        is_undominated=is_undominated,
        rejected=rejected,
        asynchrony=proposal.asynchrony,
        notes=proposal.notes,
    )
