"""What a shadow is given of each step, and what it builds to play these after all ranks of a plan, whatever it is.

    ranks of a plan, each with a part                          shadow, with the whole model
    sums of each bucket, from who has them first  ──────────>  updates all buckets
    rows of each group of batch norms             ──────────>  folds them
    the factor, where gradients are clipped       ──────────>

It computes no gradient, so its part needs no cells and sends nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement, Reduction
from nfold.core.plan import Plan
from nfold.core.schedule import RankSchedule, StatisticsGroup
from nfold.core.tasks import Elements, FoldStatistics, OptimizerStep, Task
from nfold.planning.operator_parts.splitting import split_graph
from nfold.planning.reductions.norm_messages import FACTOR
from nfold.planning.reductions.ring_and_server_messages import summed_first
from nfold.planning.reductions.statistics_groups import statistics_groups


def sums_of(
    rank: int, reductions: Sequence[Reduction], groups: Iterable[StatisticsGroup], num_chunks: int, *, clips: bool
) -> tuple[Elements, ...]:
    """Return what a rank gives a shadow of each step; all ranks together give all, each once.

    Args:
        rank: of those that train.
        reductions: of their plan.
        groups: of batch norms, of all ranks.
        num_chunks: of a batch.
        clips: whether gradients are clipped.
    """
    own = [piece for each in reductions for piece in summed_first(each, rank)]
    rows = [_rows(each, num_chunks) for each in groups if each.members[0] == rank]
    factor = [FACTOR] if clips and rank == min(map(_first_updating, reductions), default=None) else []
    return (*own, *rows, *factor)


def are_all_sums(
    sums: Iterable[Elements],
    reductions: Iterable[Reduction],
    groups: Iterable[StatisticsGroup],
    num_chunks: int,
    *,
    clips: bool,
) -> bool:
    """Return whether a shadow is given all that changes the training's state in a step, and nothing else.

    Args:
        sums: that it is given, by all ranks.
        reductions: that it updates.
        groups: of batch norms, that it folds.
        num_chunks: of a batch.
        clips: whether gradients are clipped.
    """
    whole = [Elements("gradient", each.name, 0, each.num_elements) for each in reductions]
    whole += [FACTOR] if clips and whole else []
    whole += [_rows(each, num_chunks) for each in groups]
    return _counted(sums) == _counted(whole)


def whole_plan(plan: Plan, node: str, threads: int) -> Plan:
    """Return the plan of a shadow alone, which updates all that the ranks of another plan do.

    Args:
        plan: of those that it follows.
        node: of the shadow.
        threads: that it computes with.
    """
    owners = dict.fromkeys(plan.placement.owners, (0,) * plan.chunks)
    return replace(
        plan,
        workers=1,
        servers=0,
        nodes=(node,),
        threads=(threads,),
        placement=Placement(num_chunks=plan.chunks, world_size=1, owners=owners),
        # A ring of one has no messages, and its gradients lie in buckets, where sums can be put.
        reductions=tuple(replace(each, members=(0,), route="ring", shares=()) for each in plan.reductions),
        loads_s=(0.0,),
        predicted=replace(plan.predicted, peak_memory_bytes=(0,)),
        rejected=(),
        paces=(),
        windows=(),
    )


def whole_schedule(plan: Plan, graph: ModelGraph) -> RankSchedule:
    """Return what a shadow plays of each step: what changes the training's state.

    Args:
        plan: of those that it follows.
        graph: the model, before operators are cut into parts.
    """
    groups = statistics_groups(split_graph(graph, plan.splits), plan.placement, also_alone=True)
    updated: list[Elements | None] = [Elements("gradient", each.name, 0, each.num_elements) for each in plan.reductions]
    if graph.update_scope == "model":
        updated = [None]
    tasks: list[Task] = [OptimizerStep(id=index, gradients=each) for index, each in enumerate(updated)]
    tasks += [FoldStatistics(id=len(updated) + index, group=each.name) for index, each in enumerate(groups)]
    own = tuple(replace(each, members=(0,)) for each in groups)
    return RankSchedule(rank=0, segments=(), tasks=tuple(tasks), num_events=len(tasks), statistics=own)


def _first_updating(reduction: Reduction) -> int:
    return min((share.rank for share in reduction.shares), default=reduction.members[0])


def _rows(group: StatisticsGroup, num_chunks: int) -> Elements:
    return Elements("statistics", group.name, 0, num_chunks * group.num_elements)


def _counted(sums: Iterable[Elements]) -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    for each in sums:
        found[each.kind, each.name] += each.stop - each.start
    return found
