"""Seconds of each compute task and bytes of each rank, from a profile."""

from nfold.core.graph import ModelGraph
from nfold.core.placement import chunk_sizes
from nfold.core.profile import Profile
from nfold.core.schedule import RankSchedule, Schedule, Task
from nfold.planning.facts import Facts, Proposal
from nfold.planning.schedule import ALL_REDUCTIONS

OPTIMIZER_CALL_S = 1e-4
"""Of an optimizer's step over one small tensor: measured 70 microseconds for SGD to 290 for AdamW. It keeps the planner
from cutting shares so small that calling the optimizer costs more than the overlap gains."""


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
    trained = sum(parameter.num_elements for parameter in graph.trained) or 1
    seconds: dict[tuple[int, int], float] = {}
    for task in rank.tasks:
        if task.kind == "LOAD":
            seconds[rank.rank, task.id] = profile.load_s_per_sample * sizes[task.chunk]
        elif task.kind in ("F", "B"):
            operators = rank.segments[task.segment].operators
            seconds[rank.rank, task.id] = _segment_s(operators, graph, profile, sizes[task.chunk])[task.kind == "B"]
        elif task.kind == "UPDATE":
            seconds[rank.rank, task.id] = _update_s(task, trained, profile.update.median_s)
    return seconds


def _update_s(task: Task, trained: int, whole_s: float) -> float:
    """Seconds of one UPDATE: its share of the elements, and what calling an optimizer costs at least."""
    if task.reduction.startswith("statistics") or task.purpose == "norm":
        return 0.0  # the profile counts clipping as a part of the update
    if task.reduction == ALL_REDUCTIONS:
        return whole_s
    call_s = min(whole_s, OPTIMIZER_CALL_S)
    return call_s + (whole_s - call_s) * (task.stop - task.start) / trained


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
    of what it is receiving; a dedicated server keeps its shares with their gradients, state and incoming copies.
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
            amount += reduction.num_bytes + own_bytes * (2 + per_byte)
        if own and reduction.route == "server":
            amount += own_bytes * (len(reduction.members) - 1)
        elif reduction.route == "ring":
            amount += reduction.num_bytes
    return round(amount)
