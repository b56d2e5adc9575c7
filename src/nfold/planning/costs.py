"""Seconds of each compute task and bytes of each rank, from a profile."""

from nfold.core.graph import ModelGraph
from nfold.core.placement import chunk_sizes
from nfold.core.profile import Profile
from nfold.core.schedule import RankSchedule, Schedule
from nfold.planning.facts import Facts, Proposal


def task_seconds(
    schedule: Schedule, graph: ModelGraph, profiles: tuple[Profile, ...], batch_size: int
) -> dict[tuple[int, int], float]:
    """Return the seconds of every compute task on an otherwise idle node of speed 1.

    Args:
        schedule: what is played.
        graph: the model.
        profiles: of each rank, for its number of threads.
        batch_size: of a full step.

    Returns:
        (rank, task id) -> seconds, for LOAD, F, B and UPDATE tasks. O(tasks x operators).
    """
    sizes = chunk_sizes(batch_size, schedule.num_chunks)
    seconds: dict[tuple[int, int], float] = {}
    for rank, profile in zip(schedule.ranks, profiles, strict=True):
        seconds.update(_rank_seconds(rank, graph, profile, sizes))
    return seconds


def _rank_seconds(
    rank: RankSchedule, graph: ModelGraph, profile: Profile, sizes: tuple[int, ...]
) -> dict[tuple[int, int], float]:
    updates = [task for task in rank.tasks if task.kind == "UPDATE" and not task.reduction.startswith("statistics")]
    seconds: dict[tuple[int, int], float] = {}
    for task in rank.tasks:
        if task.kind == "LOAD":
            seconds[rank.rank, task.id] = profile.load_s_per_sample * sizes[task.chunk]
        elif task.kind in ("F", "B"):
            operators = rank.segments[task.segment].operators
            seconds[rank.rank, task.id] = _segment_s(operators, graph, profile, sizes[task.chunk])[task.kind == "B"]
        elif task.kind == "UPDATE":
            share = 1 / len(updates) if task in updates else 0.0
            seconds[rank.rank, task.id] = profile.update.median_s * share
    return seconds


def _segment_s(operators: tuple[str, ...], graph: ModelGraph, profile: Profile, chunk_size: int) -> tuple[float, float]:
    if chunk_size == 0:
        return 0.0, 0.0
    if len(operators) == len(graph.operators):
        return profile.whole_s(chunk_size)
    each = profile.operators_s(chunk_size)
    return sum(each[name][0] for name in operators), sum(each[name][1] for name in operators)


def peak_memory_bytes(facts: Facts, proposal: Proposal, profile: Profile) -> tuple[int, ...]:
    """Return the predicted peak memory of each rank.

    A worker keeps parameters, gradients, optimizer state for what it updates, the activations of one chunk and a copy
    of what it is receiving; a dedicated server keeps its shards with their gradients, state and one incoming copy.
    """
    chunk_size = max(chunk_sizes(facts.batch_size, proposal.placement.num_chunks))
    computing = proposal.placement.ranks_of(tuple(proposal.placement.owners))
    return tuple(
        profile.base_bytes
        + _state_bytes(proposal, profile, rank)
        + (round(profile.activation_bytes_per_sample * chunk_size) if rank in computing else 0)
        for rank in range(proposal.placement.world_size)
    )


def _state_bytes(proposal: Proposal, profile: Profile, rank: int) -> int:
    """Parameters, gradients, optimizer state and receive buffers of one rank."""
    total = sum(reduction.num_bytes for reduction in proposal.reductions) or 1
    per_byte = profile.optimizer_bytes / total
    amount = 0.0
    for reduction in proposal.reductions:
        own = sum(share.stop - share.start for share in reduction.shares if share.rank == rank)
        own_bytes = own * reduction.item_bytes
        if rank in reduction.members:
            updated = own_bytes if reduction.route == "server" else reduction.num_bytes
            amount += 2 * reduction.num_bytes + updated * per_byte
        elif own:
            amount += 2 * reduction.num_bytes + own_bytes * per_byte
        if own and reduction.route == "server":
            amount += own_bytes * (len(reduction.members) - 1)
        elif reduction.route == "ring":
            amount += reduction.num_bytes
    return round(amount)
