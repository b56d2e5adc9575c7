"""Asks the strategies for proposals, and makes the best of them a plan that says why the others lost."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from nfold.core.plan import Plan, Rejected, Unpredicted
from nfold.errors import ClusterError, PlanError
from nfold.planning.asynchronous.asynchronous_strategies import ASYNCHRONOUS, NOT_COMPARED
from nfold.planning.choosing.advice import Refused, advise
from nfold.planning.choosing.candidates import Candidate
from nfold.planning.choosing.comparing_candidates import fewer_workers
from nfold.planning.choosing.exactness import exact_notes
from nfold.planning.choosing.portfolio import Portfolio
from nfold.planning.choosing.proposals import Answers
from nfold.planning.choosing.strategies import AUTO, SEARCHED, STRATEGIES, Strategy, named, objection_to
from nfold.planning.choosing.wishes import check, check_ranks
from nfold.planning.inputs.chunk_counts import chunk_notes
from nfold.planning.inputs.facts import Facts
from nfold.planning.reductions.buckets import sparse_notes
from nfold.planning.scheduling.garbage_collection import without_collecting
from nfold.planning.scheduling.windows import window_notes

MOST_CANDIDATES = 4
"""Proposals of a strategy that may win, the best by estimate; of strategies that were not asked for, one."""


@without_collecting()
def plan(
    facts: Facts, strategy: str = AUTO, *, among: Sequence[Strategy] = STRATEGIES, answers: Answers | None = None
) -> Plan:
    """Return the plan of a strategy, or the one predicted fastest.

    Args:
        facts: program, machines and wishes.
        strategy: a name of STRATEGY_NAMES; `auto` never predicts slower than any that it could have taken.
        among: what is looked at; the plan says why it is better than the others of them.
        answers: what was worked out for the same question before.

    Raises:
        PlanError: the strategy is unknown, cannot be used here, or fits no node's memory; and what would be possible.
    """
    try:
        return plan_as_asked(facts, strategy, among, answers)
    except PlanError as error:
        raise _refused(facts, strategy, error) from error


def check_possible(facts: Facts, strategy: str) -> None:
    """Refuse wishes that make no sense before links are known, and say which ones would.

    Raises:
        PlanError: with the reason and what could be asked for instead.
    """
    try:
        check(facts, strategy)
    except PlanError as error:
        raise _refused(facts, strategy, error) from error


def _refused(facts: Facts, strategy: str, error: PlanError) -> PlanError:
    """Return a refusal with what can be had instead; one of wishes that make no sense at all is told as it is."""
    try:
        check_ranks(strategy, facts.workers, facts.servers)
    except PlanError:
        return error
    return Refused(str(error), advise(facts, strategy, has_all))


def is_possible(facts: Facts, strategy: str) -> bool:
    """Whether a plan can be made."""
    return possible_plan(facts, strategy) is not None


def has_all(facts: Facts, strategy: str) -> bool:
    """Whether the plan of a strategy gives every worker something to do; that of `auto` need not."""
    found = possible_plan(facts, strategy)
    return found is not None and len(found.placement.working) == facts.workers


def possible_plan(facts: Facts, strategy: str) -> Plan | None:
    """Return the best plan that can be found quickly; None: none can be made."""
    among = [each for each in STRATEGIES if each.name == strategy or (strategy == AUTO and each.name not in SEARCHED)]
    try:
        return plan_as_asked(facts, strategy, among)
    except (PlanError, ClusterError):
        return None


def plan_as_asked(
    facts: Facts, strategy: str = AUTO, among: Sequence[Strategy] = STRATEGIES, answers: Answers | None = None
) -> Plan:
    """Return the plan that `plan` returns, but refuse without advice, which takes dozens of plans to find.

    Raises:
        PlanError: as `plan`.
    """
    check(facts, strategy)
    chosen = None if strategy == AUTO else named(strategy)
    portfolio = Portfolio(answers or Answers(facts), among)
    for each in among:
        objection = _objection(each, facts, wanted=each is chosen)
        if objection:
            portfolio.rejected.append(Rejected(strategy=each.name, predicted=Unpredicted(), why=objection))
        else:
            portfolio.add(each, MOST_CANDIDATES if chosen in (None, each) else 1)
    portfolio.settle(chosen)
    winner = portfolio.winner(chosen)
    found = to_plan(
        facts,
        winner,
        is_undominated=portfolio.is_undominated(winner),
        rejected=portfolio.losers(winner, forced=chosen is not None),
    )
    if chosen is not None or found.workers == facts.workers:
        return found
    why_none = "; ".join(f"{loser.strategy}: {loser.why}" for loser in portfolio.rejected[:1])
    best = portfolio.best_on(facts.workers)
    note = fewer_workers(facts.workers, winner, best, why_none, has_all=partial(has_all, facts))
    return replace(found, notes=(*found.notes, note))


def to_plan(
    facts: Facts, candidate: Candidate, *, is_undominated: bool = True, rejected: tuple[Rejected, ...] = ()
) -> Plan:
    """Return a candidate as a plan.

    Args:
        facts: the question that it answers.
        candidate: to become the plan.
        is_undominated: whether no other candidate is as good in time, bytes and memory, and better in one.
        rejected: the candidates that it was compared with.
    """
    proposal, chunks = candidate.proposal, candidate.proposal.placement.num_chunks
    return Plan(
        strategy=candidate.strategy,
        chunks=chunks,
        batch_size=facts.batch_size,
        workers=proposal.workers,
        servers=proposal.servers,
        nodes=facts.nodes[: proposal.placement.world_size],
        threads=candidate.threads,
        placement=proposal.placement,
        reductions=proposal.reductions,
        loads_s=candidate.loads_s,
        predicted=candidate.predicted,
        paces=candidate.paces,
        splits=dict(proposal.splits),
        is_undominated=is_undominated,
        rejected=rejected,
        asynchrony=proposal.asynchrony,
        windows=proposal.windows,
        loaders=min(profile.loaders for profile in facts.profiles.values()),
        notes=(
            *proposal.notes,
            *window_notes(proposal.windows),
            *(() if facts.chunk_shares else chunk_notes(facts.graph, facts.batch_size, chunks)),
            *sparse_notes(facts.graph, proposal.reductions),
            *exact_notes(facts),
        ),
        evaluates=facts.evaluates,
        keeps_snapshots=facts.keeps_snapshots,
        chunk_shares=facts.chunk_shares,
    )


def _objection(strategy: Strategy, facts: Facts, *, wanted: bool) -> str | None:
    objection = objection_to(strategy, facts)
    if objection and wanted:
        raise PlanError(f"--strategy {strategy.name}: {objection}")
    if not wanted and strategy.name in ASYNCHRONOUS:
        return objection or NOT_COMPARED
    return objection
