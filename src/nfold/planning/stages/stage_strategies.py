"""Strategies whose placement is a row of stages: pipelines, replicated stages, and batches shared by speed."""

from collections.abc import Iterator

import numpy as np

from nfold.planning.costs.machines import Machine, machines_of, orders, teams
from nfold.planning.costs.operator_runs import Runs, join_runs
from nfold.planning.inputs.chunk_counts import chunk_counts
from nfold.planning.inputs.facts import Facts, Proposal
from nfold.planning.reductions.reductions_without_servers import placed
from nfold.planning.stages.stage_costs import Grid, StageCosts
from nfold.planning.stages.stage_division import divide, groups, least_bottleneck_s

MOST_RUNS = 96
"""Runs between which a stage may end: a plan's time grows with their square."""
MOST_ORDERS, BEST_ORDERS = 24, 2
"""Orders of unequal machines along a pipeline: how many are looked at, and how many of those are proposed."""
MANY_UNLIKE = 16
"""Unequal machines beyond which stages have only some numbers of them, since all those that lie beside each other
differ: 1, 2, 3, 4, 6, 8, 12, .."""
MOST_STAGES = 3000
"""That are looked at in all orders together; fewer orders of more machines."""
SLACKS = (1.0, 1.05, 1.25, 2.0)
"""How much longer than the least bottleneck a stage may take to save bytes; what is worth it the simulator decides."""


class Pipeline:
    """Every worker computes some consecutive operators for all chunks, and sends their outputs to the next."""

    name = "pipeline"

    def accepts(self, facts: Facts) -> str | None:
        return unshared(facts) or uncut(facts) or _too_few_runs(facts)

    def propose(self, facts: Facts) -> Iterator[Proposal]:
        for team in teams(machines_of(facts)):
            if len(team) > 1:
                yield from _proposals(facts, runs_of(facts), team, most_replicas=1)


class Hybrid:
    """Stages of consecutive operators with one or several workers each, which share the chunks by speed.

    With one stage it is data parallelism in which a node that is twice as fast gets twice the chunks, and one that is
    much slower, worse linked or smaller than the others may get none. One machine may do everything, if it is not the
    first, of which strategy `single` makes that.
    """

    name = "hybrid"

    def accepts(self, facts: Facts) -> str | None:
        if reason := unshared(facts):
            return reason
        objection, sizes = uncut(facts), _team_sizes(facts)
        if facts.graph.indivisible and 1 not in sizes:
            return f"the batch cannot be cut into chunks: {facts.graph.indivisible}"
        if all(_most_chunks(facts, size) < size for size in sizes):
            return objection or _too_few_shared(facts, sizes)
        if objection and _is_even(facts) and len(sizes) == 1:
            return f"{objection}, and equally fast workers would share the batch as a ring does"
        return None

    def propose(self, facts: Facts) -> Iterator[Proposal]:
        whole, is_uncut = (tuple(operator.name for operator in facts.graph.operators),), uncut(facts) is not None
        every = list(teams(machines_of(facts)))
        for index, team in enumerate(every):
            chunks = _most_chunks(facts, len(team))
            is_a_ring = index == 0 and _is_even(facts) and not (is_uncut and len(every) > 1)
            if chunks >= len(team) and not is_a_ring:
                yield from _proposals(facts, whole, team, most_replicas=len(team))
            if not is_uncut and len(team) > 1:
                yield from _proposals(facts, runs_of(facts), team, most_replicas=min(len(team) - 1, chunks))


# What cannot be done


def unshared(facts: Facts) -> str | None:
    """Return the reason why the workers cannot share a model without servers; None: they can."""
    if facts.servers:
        return "its workers need no servers"
    if facts.workers < 2:
        return "one worker has nobody to share the model with"
    return None


def uncut(facts: Facts) -> str | None:
    """Return the reason why all operators must stay on one rank; None: they need not."""
    if facts.graph.update_scope == "model":
        return f"{facts.graph.why_updated_whole}, so each worker must hold the whole model"
    if len(facts.graph.operators) < 2:
        notes = facts.graph.notes
        told = next((note for note in notes if "is kept whole: " in note), next(iter(notes), ""))
        reason = f" ({told})" if told else ""
        batch = f"; nor can its batch: {facts.graph.indivisible}" if facts.graph.indivisible else ""
        return f"the model was captured as one operator, which cannot be cut{reason}{batch}"
    if any(len(profile.operators) < len(facts.graph.operators) for profile in facts.profiles.values()):
        return "its operators could not be timed one by one"
    return None


def _too_few_runs(facts: Facts) -> str | None:
    count = len(runs_of(facts))
    if any(1 < size <= count for size in _team_sizes(facts)):
        return None
    return (
        f"{facts.workers} workers need a stage each, and only {count} of the {len(facts.graph.operators)} operators "
        "take time"
    )


def _team_sizes(facts: Facts) -> list[int]:
    """Return how many workers each team has that may get all the work."""
    return [len(team) for team in teams(machines_of(facts))]


def _most_chunks(facts: Facts, sharing: int) -> int:
    return chunk_counts(facts, sharing)[-1]


def _too_few_shared(facts: Facts, sizes: list[int]) -> str | None:
    """Say so where replicas have no chunk each: a stage has as many as there are chunks at most."""
    chunks, runs = _most_chunks(facts, facts.workers), len(runs_of(facts))
    if chunks == 1:
        return "its stages share chunks, and there is 1"
    if any(size <= runs * _most_chunks(facts, size) for size in sizes):
        return None
    return (
        f"{facts.workers} workers need a stage each or chunks to share, and {runs} operators take "
        f"time, of {chunks} chunks each"
    )


def _is_even(facts: Facts) -> bool:
    """Whether all workers compute equally fast."""
    return len({(machine.threads, machine.pace) for machine in machines_of(facts)}) == 1


# What is proposed


def runs_of(facts: Facts) -> Runs:
    """Return the runs of operators between which a stage may end."""
    profile = facts.profiles[facts.threads(facts.workers)[0]]
    seconds = profile.operators_s(facts.batch_size / chunk_counts(facts)[0])
    return join_runs(facts.graph, {name: sum(pair) for name, pair in seconds.items()}, MOST_RUNS)


def _proposals(facts: Facts, runs: Runs, team: tuple[Machine, ...], most_replicas: int) -> Iterator[Proposal]:
    """Yield the divisions with the least bottlenecks, and those that save bytes for a little more.

    Where memory allows none, the best without regard to memory is proposed, so that it can be said what it lacks.
    """
    seen = set()
    for num_chunks in chunk_counts(facts, len(team)):
        for owners in _tables(Grid(facts, runs, num_chunks), team, most_replicas):
            key = tuple(owners.values())
            if key not in seen:
                seen.add(key)
                yield placed(facts, owners)


def _tables(grid: Grid, machines: tuple[Machine, ...], most_replicas: int) -> Iterator[dict[str, tuple[int, ...]]]:
    sizes = stage_sizes(machines, most_replicas)
    size = (grid.num_runs, len(machines), sizes)
    most_orders = MOST_STAGES // sum(1 for _ in groups(len(machines), sizes))
    for limited in (True, False):
        found: list[tuple[float, int, StageCosts]] = []
        for order in orders(machines, min(MOST_ORDERS, max(BEST_ORDERS, most_orders))):
            costs = StageCosts(grid, order, limited=limited)
            found.append((least_bottleneck_s(costs.seconds, *size), len(found), costs))
        possible = [each for each in sorted(found, key=lambda each: each[:2]) if np.isfinite(each[0])]
        for least_s, _, costs in possible[:BEST_ORDERS]:
            fewest = np.inf
            for slack in SLACKS:
                stages = divide(costs.seconds, costs.bytes, slack * least_s, *size)
                sent = sum(costs.bytes(each.first, each.last)[each.start, each.stop] for each in stages)
                if sent < fewest:
                    fewest = sent
                    yield grid.owners(costs.machines, stages)
        if possible:
            return


def stage_sizes(machines: tuple[Machine, ...], most: int) -> tuple[int, ...]:
    """Return how many of these machines a stage may have, ascending: any number where they are equal or few.

    Args:
        machines: that the stages share.
        most: of one stage.
    """
    if len(machines) <= MANY_UNLIKE or len({machine.kind for machine in machines}) == 1:
        return tuple(range(1, most + 1))
    powers = [1 << power for power in range(most.bit_length())]
    return tuple(sorted({size for power in powers for size in (power, 3 * power // 2) if size <= most} | {most}))
