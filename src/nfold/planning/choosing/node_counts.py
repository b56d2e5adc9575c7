"""How long a program trains on other numbers of nodes than were measured, and how many of them are worth having. Pure.

Nodes are taken in the order in which they were measured, which is that in which a run takes them. Beyond those that
there are, they come again: a fourth of three is like the first, under a name of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nfold.core.cluster import Node
from nfold.core.findings.comparison import Architecture
from nfold.core.findings.node_advice import Advice, Forecast, Size
from nfold.core.plan import Plan
from nfold.errors import ClusterError, NfoldError, PlanError
from nfold.planning.choosing.bottleneck import bottleneck_of
from nfold.planning.choosing.comparing_candidates import TIE
from nfold.planning.choosing.portfolio import NothingRuns
from nfold.planning.choosing.search import plan_as_asked
from nfold.planning.inputs.facts import Facts

HELPS = 0.05
"""More nodes help if they save so much of a step: predictions are no nearer than that."""
_EVERY = 8
"""Up to so many nodes each number is looked at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What advice is asked for: which numbers of nodes, for how long a run."""

    sizes: tuple[int, ...]
    """Numbers of nodes, ascending."""
    total_steps: int
    price_per_hour: float | None = None
    """Of every node; None: each has its own."""
    within_s: float | None = None
    """In which the run should be done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    """What was planned for a number of nodes."""

    facts: Facts
    chosen: Plan | None = None
    refused: str = ""


def sizes_between(least: int, most: int) -> tuple[int, ...]:
    """Return the numbers of nodes that are looked at: all up to 8, then 12, 16, 24, 32 .., and both ends."""
    series = list(range(1, _EVERY + 1))
    while series[-1] < most:
        series += [series[-1] * 3 // 2, series[-1] * 2]
    return tuple(sorted({least, most, *(size for size in series if least <= size <= most)}))


def advise_sizes(question: Facts, wanted: Wanted) -> Advice:
    """Plan for each number of nodes, and say which are worth having.

    Args:
        question: about the nodes that were measured, one worker on each.
        wanted: which numbers, and how long the run is.
    """
    names = tuple(dict.fromkeys(question.nodes))
    measured = [question.cluster.node(name) for name in names]
    answers = {size: _answer(question, _repeated(measured, size)) for size in sorted({1, *wanted.sizes})}
    alone = answers[1].chosen
    sizes = tuple(_size(answers[size], len(names), alone, wanted) for size in wanted.sizes)
    runs = {each.nodes: each.forecast for each in sizes if each.forecast is not None}
    return Advice(
        measured=names,
        batch_size=question.batch_size,
        total_steps=wanted.total_steps,
        sizes=sizes,
        stop_at=_stop_at(runs),
        quickest=_quickest(runs),
        cheapest=_cheapest(runs),
        within_s=wanted.within_s,
        in_time=_in_time(runs, wanted.within_s),
    )


def _repeated(nodes: Sequence[Node], size: int) -> list[Node]:
    """Return so many nodes: `n0`, `n1`, and where there are no more `n0+1`, which is like `n0`."""
    turns = [divmod(index, len(nodes)) for index in range(size)]
    return [replace(nodes[at], name=f"{nodes[at].name}+{turn}") if turn else nodes[at] for turn, at in turns]


def _answer(question: Facts, nodes: Sequence[Node]) -> _Answer:
    facts = replace(
        question,
        cluster=replace(question.cluster, nodes=tuple(nodes)),
        nodes=tuple(node.name for node in nodes),
        workers=len(nodes),
        servers=0,
    )
    try:
        return _Answer(facts=facts, chosen=plan_as_asked(facts))
    except (PlanError, ClusterError) as error:
        return _Answer(facts=facts, refused=refusal_of(error))


def refusal_of(error: NfoldError) -> str:
    """Say why nothing can run: where memory is too small, of what needs the least of it."""
    rejected = error.rejected if isinstance(error, NothingRuns) else ()
    needs = {
        f"{each.strategy}: {each.why}": max(each.predicted.peak_memory_bytes)
        for each in rejected
        if each.predicted.peak_memory_bytes
    }
    return min(needs, key=needs.__getitem__) if needs else str(error)


def _size(answer: _Answer, num_measured: int, alone: Plan | None, wanted: Wanted) -> Size:
    facts, chosen = answer.facts, answer.chosen
    size = Size(nodes=facts.workers, num_measured=min(num_measured, facts.workers), note=answer.refused)
    if chosen is None:
        return size
    step_s, working = chosen.predicted.step_s, {chosen.nodes[rank] for rank in chosen.placement.working}
    run_s = step_s * wanted.total_steps
    forecast = Forecast(
        architecture=Architecture(strategy=chosen.strategy, servers=chosen.servers).sized(chosen.workers),
        chunks=chosen.chunks,
        idle=tuple(name for name in facts.nodes if name not in working),
        step_s=step_s,
        run_s=run_s,
        samples_per_s=facts.batch_size / step_s,
        speedup=alone.predicted.step_s / step_s if alone is not None else None,
        cost=_cost(facts.cluster.nodes, run_s, wanted.price_per_hour),
        bottleneck=bottleneck_of(facts, chosen),
    )
    # The search says last why it leaves workers out.
    return replace(size, forecast=forecast, note=chosen.notes[-1] if chosen.workers < facts.workers else "")


def _cost(nodes: Sequence[Node], run_s: float, price_per_hour: float | None) -> float | None:
    """Return what all nodes cost while the run goes on; None where nothing has a price."""
    prices = [node.price_per_hour if price_per_hour is None else price_per_hour for node in nodes]
    return sum(prices) * run_s / 3600 if any(prices) else None


def _stop_at(runs: Mapping[int, Forecast]) -> int | None:
    """Return the fewest nodes than which no larger number is much faster."""
    for size, run in runs.items():
        if all(other.step_s > (1 - HELPS) * run.step_s for larger, other in runs.items() if larger > size):
            return size
    return None


def _quickest(runs: Mapping[int, Forecast]) -> int | None:
    """Return the fewest nodes of those that are about as fast as any."""
    least_s = min((run.step_s for run in runs.values()), default=0.0)
    return next((size for size, run in runs.items() if run.step_s <= TIE * least_s), None)


def _cheapest(runs: Mapping[int, Forecast]) -> int | None:
    costs = {size: run.cost for size, run in runs.items() if run.cost is not None}
    return min(costs, key=lambda size: (costs[size], size), default=None)


def _in_time(runs: Mapping[int, Forecast], within_s: float | None) -> int | None:
    if within_s is None:
        return None
    return next((size for size, run in runs.items() if run.run_s <= within_s), None)
