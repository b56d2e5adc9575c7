"""What each rank of a plan plays in a step. The coordinator compiles it once, and sends each rank its own."""

from collections.abc import Mapping
from dataclasses import replace

from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement
from nfold.core.plan import Plan
from nfold.core.profile import Profile
from nfold.core.schedule import RankSchedule
from nfold.planning.operator_parts.splitting import split_graph, split_profile
from nfold.planning.scheduling.schedule_compiler import compile_schedule


def rank_schedules(
    plan: Plan, graph: ModelGraph, profiles: Mapping[int, Profile] | None = None
) -> tuple[RankSchedule, ...]:
    """Return the schedule of each rank. An asynchronous plan has one for all: how a worker computes a slice by itself.

    Args:
        plan: how the work is spread.
        graph: the model, before operators are cut into parts.
        profiles: by number of threads, for the order of cells. None: as if all operators took equally long.
    """
    seconds = None
    parts = split_graph(graph, plan.splits)
    if profiles is not None:
        profile = split_profile(profiles[plan.threads[0]], graph, plan.splits)
        known = profile.operators_s(plan.batch_size / plan.chunks)
        seconds = known if all(operator.name in known for operator in parts.operators) else None
    if plan.asynchrony is not None:
        return (_alone(plan, graph, seconds),) * plan.world_size
    compiled = compile_schedule(
        parts,
        plan.placement,
        plan.reductions,
        batch_size=plan.batch_size,
        operator_seconds=seconds,
        paces=plan.paces,
        windows=plan.windows,
        chunk_shares=plan.chunk_shares,
    )
    return compiled.ranks


def _alone(plan: Plan, graph: ModelGraph, seconds: Mapping[str, tuple[float, float]] | None) -> RankSchedule:
    """Return the schedule of a worker that computes its slices by itself, and hands gradients over when it has them."""
    owners = {operator.name: (0,) * plan.chunks for operator in graph.operators}
    alone = Placement(num_chunks=plan.chunks, world_size=1, owners=owners)
    # A ring of one has no messages, but its buckets' completion is watched: no parameter may go without gradient.
    buckets = tuple(replace(each, members=(0,), route="ring", shares=()) for each in plan.reductions)
    compiled = compile_schedule(graph, alone, buckets, batch_size=plan.batch_size, operator_seconds=seconds)
    return compiled.ranks[0]
