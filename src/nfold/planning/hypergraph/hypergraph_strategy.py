"""Strategy `hypergraph`: places any cell on any rank, so that few bytes are sent and each rank works by its speed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import ceil

from nfold.core.placement import Placement
from nfold.planning.costs.estimate import estimate
from nfold.planning.costs.machines import Machine, machines_of
from nfold.planning.costs.memory_needs import ROOM, rooms
from nfold.planning.hypergraph import kahypar
from nfold.planning.hypergraph.balance import balance_notes, imbalance, keeps
from nfold.planning.hypergraph.block_limits import Limits
from nfold.planning.hypergraph.cell_hypergraph import Costs, Hypergraph, blocks_of, build, owners_of
from nfold.planning.hypergraph.operators_to_cut import propose_splits
from nfold.planning.hypergraph.partition import Effort, Partition, improved, measure, partitions
from nfold.planning.inputs.chunk_counts import chunk_counts, deal
from nfold.planning.inputs.facts import Facts, Proposal
from nfold.planning.inputs.operator_groups import coarsen
from nfold.planning.operator_parts.splitting import split_facts
from nfold.planning.reductions.reductions_without_servers import placed
from nfold.planning.stages.stage_strategies import Hybrid, Pipeline, uncut, unshared

EPSILONS = (0.25, 0.1)
"""How far a rank's work may be above its share: less balance saves bytes; what is worth it the simulator decides."""
NUM_KEPT = 2
"""Partitions of each tolerance that are proposed."""
CONTAINED = (Pipeline(), Hybrid())
"""Strategies whose placements are among the partitions: where the search begins that time has the last word on."""
ROOMS = (1.0, 1.1)
"""How heavy a rank may be, by the heaviest of such a placement, while its bytes are lowered. On slow links a good
pipeline is out of balance by far more than EPSILONS, and everything within them sends many times as much."""
Contained = Callable[[], Iterable[tuple[Proposal, float]]]
"""Says what those propose for a question, each with about how long a step takes."""
MOST_CELLS = 4096
"""Vertices of a hypergraph: more operators ride together where there are many chunks."""
WITHOUT = (
    "mtkahypar is not installed, so the partitions of strategy hypergraph come from nfold's own, simpler search. "
    "Run: pip install mtkahypar"
)


class ByHypergraph:
    """Divides the cells as a hypergraph whose cut is the traffic of a step; see
    `planning/hypergraph/cell_hypergraph.py`."""

    name = "hypergraph"

    def accepts(self, facts: Facts) -> str | None:
        objection = unshared(facts) or uncut(facts) or _too_few_cells(facts)
        return objection or _too_large(split_facts(facts, propose_splits(facts)))

    def propose(self, facts: Facts, contained: Contained | None = None) -> Iterator[Proposal]:
        """Yield placements with reductions.

        Args:
            facts: the question.
            contained: what was worked out before; None: nothing.
        """
        splits = propose_splits(facts)
        if not splits or not _too_large(facts):
            yield from self._proposals(facts, contained or (lambda: _worked_out(facts)))
        if splits:
            parts = split_facts(facts, splits)
            for proposal in self._proposals(parts, lambda: _worked_out(parts)):
                yield replace(proposal, splits=splits)

    def _proposals(self, facts: Facts, contained: Contained) -> Iterator[Proposal]:
        machines = machines_of(facts)
        notes = () if kahypar.is_available() else (WITHOUT,)
        loosest = limits_of(facts, machines, max(EPSILONS))
        found = list(_partitions(facts, machines, contained))
        is_possible = any(keeps(partition, loosest) for _, partition in found)
        seen = set[tuple[tuple[int, ...], ...]]()
        for hypergraph, partition in found:
            owners = _interleaved(facts, hypergraph, partition.blocks)
            if not hypergraph.fixed:
                owners = _relabelled(facts, machines, owners)
            key = tuple(owners.values())
            if key not in seen:
                seen.add(key)
                divisible = not facts.graph.indivisible
                told = balance_notes(partition, loosest, is_possible=is_possible, is_divisible=divisible)
                yield placed(facts, owners, (*notes, *told))


def hypergraph_of(facts: Facts, num_chunks: int) -> Hypergraph:
    """Return the cells of a question, weighted by the seconds of the first rank's profile."""
    sizes = facts.chunk_sizes(num_chunks)
    profile = facts.profiles[facts.threads(facts.workers)[0]]
    seconds = {size: profile.operators_s(size) for size in set(sizes) if size}
    weights = {name: sum(pair) for name, pair in seconds[max(sizes)].items()}
    groups = coarsen(facts.graph, weights, max(facts.workers, MOST_CELLS // num_chunks))
    costs = Costs(
        seconds=seconds,
        saved_bytes_per_sample=profile.saved_bytes(),
        state_factor=2 + profile.optimizer_bytes / max(1, facts.graph.parameter_bytes),
    )
    return build(facts.graph, groups, sizes, costs, _homes(facts, num_chunks))


def limits_of(facts: Facts, machines: tuple[Machine, ...], epsilon: float) -> Limits:
    """Return what each rank may hold: work by its speed, bytes by its share of its node's memory."""
    rates = [1 / each.chunk_s for each in machines]
    return Limits(
        shares=tuple(rate / sum(rates) for rate in rates),
        epsilon=epsilon,
        memory_bytes=tuple(ROOM * room for room in rooms(facts)),
    )


def _partitions(
    facts: Facts, machines: tuple[Machine, ...], contained: Contained
) -> Iterator[tuple[Hypergraph, Partition]]:
    """Yield what is found from nothing, then what is found from the placements of strategies that are contained."""
    finest = hypergraph_of(facts, chunk_counts(facts)[-1])
    yield from ((finest, each) for each in _balanced(facts, finest, machines))
    most = Effort.of(finest, len(machines)).num_layouts
    for placement in _fastest(contained(), most) if most else ():
        hypergraph = hypergraph_of(facts, placement.num_chunks)
        yield from ((hypergraph, each) for each in _as_uneven(facts, hypergraph, machines, placement))


def _balanced(facts: Facts, hypergraph: Hypergraph, machines: tuple[Machine, ...]) -> Iterator[Partition]:
    """Yield the best of each tolerance; what was found for one is where the search for the next begins."""
    known: list[Partition] = []
    effort = Effort.of(hypergraph, len(machines))
    for epsilon in EPSILONS:
        limits = limits_of(facts, machines, epsilon)
        starts = [partition.blocks for partition in known[:NUM_KEPT]]
        known = partitions(hypergraph, limits, starts, effort.from_layouts() if starts else effort)
        yield from known[:NUM_KEPT]


def _worked_out(facts: Facts) -> Iterator[tuple[Proposal, float]]:
    for strategy in CONTAINED:
        if strategy.accepts(facts) is None:
            yield from ((each, estimate(facts, each).step_s) for each in strategy.propose(facts))


def _fastest(contained: Iterable[tuple[Proposal, float]], most: int) -> list[Placement]:
    """Return the placements of contained strategies that are the fastest by estimate, and divide something."""
    steps_s = {
        tuple(each.placement.owners.values()): (step_s, each.placement)
        for each, step_s in contained
        if len(each.placement.working) > 1
    }
    return [placement for _, placement in sorted(steps_s.values(), key=lambda each: each[0])[:most]]


def _as_uneven(
    facts: Facts, hypergraph: Hypergraph, machines: tuple[Machine, ...], placement: Placement
) -> Iterator[Partition]:
    """Yield partitions of fewer bytes than a placement whose heaviest rank has about as much to do.

    No byte is sent where one rank does everything, and a placement far out of balance has room for that; but it divides
    nothing, and is what strategies `single` and `hybrid` are for.
    """
    profile = facts.profiles[machines[0].threads]
    blocks = blocks_of(hypergraph, placement, profile.operators_s(facts.batch_size / placement.num_chunks))
    exact = limits_of(facts, machines, 0.0)
    epsilon = imbalance(measure(hypergraph, exact, blocks), exact)
    for room in ROOMS:
        found = improved(hypergraph, limits_of(facts, machines, room * (1 + epsilon) - 1), blocks)
        yield from (each for each in found if len(set(each.blocks)) > 1)


def _homes(facts: Facts, num_chunks: int) -> tuple[int, ...]:
    """Return for each chunk a rank where its samples live, by how many live there; nothing if all nodes have all."""
    nodes = facts.nodes[: facts.workers]
    numbers = [facts.cluster.node(name).num_samples for name in nodes]
    total = sum(number or 0 for number in numbers)
    if all(number is None for number in numbers) or total == 0:
        return ()
    first = [rank for rank, name in enumerate(nodes) if name not in nodes[:rank] and numbers[rank]]
    borders = [sum(numbers[rank] or 0 for rank in first[: index + 1]) for index in range(len(first))]
    return tuple(
        next(
            rank
            for rank, border in zip(first, borders, strict=True)
            if (chunk + 0.5) / num_chunks * borders[-1] < border
        )
        for chunk in range(num_chunks)
    )


# What cannot be done


def _too_few_cells(facts: Facts) -> str | None:
    chunks, operators = chunk_counts(facts)[-1], len(facts.graph.operators)
    if chunks * operators >= facts.workers:
        return None
    cut = f"{chunks} chunk{'s' if chunks != 1 else ''} are"
    return f"{operators} operators and {cut} {chunks * operators} cells, too few for {facts.workers} workers"


def _too_large(facts: Facts) -> str | None:
    """Say so if no division fits: each parameter must be somewhere, with its gradient and optimizer's state."""
    hypergraph, having = hypergraph_of(facts, 1), [max(0.0, room) for room in rooms(facts)]
    needed = sum(state.num_bytes for state in hypergraph.states)
    each = ", ".join(f"{facts.nodes[rank]} {int(room / 2**20)}" for rank, room in enumerate(having))
    if needed > sum(having):
        return (
            f"parameters, gradients and optimizer state need {ceil(needed / 2**20)} MiB, and the ranks have "
            f"room for (MiB): {each}. Add nodes, or use an optimizer that keeps less."
        )
    largest = max(hypergraph.states, key=lambda state: state.num_bytes, default=None)
    if largest and largest.num_bytes > max(having):
        name = hypergraph.groups[largest.groups[0]][0]
        return (
            f"{name} needs {ceil(largest.num_bytes / 2**20)} MiB for its parameters, gradients and optimizer state, "
            f"and the ranks have room for (MiB): {each}. Use a node with more memory."
        )
    return None


# The names of blocks and the order of chunks, which change no byte


def _relabelled(
    facts: Facts, machines: tuple[Machine, ...], owners: dict[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Number interchangeable ranks by where they begin, so that equal layouts are seen to be equal."""
    nodes = facts.nodes[: facts.workers]
    waiting: dict[object, list[int]] = {}
    for machine in machines:
        alone = nodes.count(nodes[machine.rank]) == 1 or len(set(nodes)) == 1
        waiting.setdefault(machine.kind if alone else machine.rank, []).append(machine.rank)
    alike = {rank: ranks for ranks in waiting.values() for rank in ranks}
    names = {rank: alike[rank].pop(0) for rank in dict.fromkeys(rank for row in owners.values() for rank in row)}
    return {name: tuple(names[rank] for rank in row) for name, row in owners.items()}


def _interleaved(facts: Facts, hypergraph: Hypergraph, blocks: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the table with equal columns spread evenly over the step, so that ranks that share work run side by side.

    Only columns of equally many samples change places.
    """
    owners = owners_of(hypergraph, blocks)
    if hypergraph.fixed:
        return owners
    sizes = facts.chunk_sizes(hypergraph.num_chunks)
    columns = list(zip(*owners.values(), strict=True))
    order: list[int] = []
    for size in sorted(set(sizes), reverse=True):
        kinds: dict[tuple[int, ...], list[int]] = {}
        for chunk, column in enumerate(columns):
            if sizes[chunk] == size:
                kinds.setdefault(column, []).append(chunk)
        alike = [kinds[column] for column in sorted(kinds)]
        order.extend(alike[position].pop(0) for position in deal(tuple(map(len, alike))))
    return {name: tuple(ranks[chunk] for chunk in order) for name, ranks in owners.items()}
