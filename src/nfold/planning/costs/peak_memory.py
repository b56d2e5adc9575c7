"""Bytes of each rank at its peak.

whole process     the interpreter, torch, its kernels' buffers, the data set          measured when it has computed
loaders           the same but for buffers and libraries' code, in each process that reads for the rank
weights           of the operators that it owns, and of those without users        the rest is freed after building
averages          of these weights, where the program has some
gradients, state  of the buckets that it reduces or serves, with what it receives to add
snapshots         two or three of weights, averages and state, where hosts come and go, and of what another has alone
activations       kept from forward to backward by the chunks that it has begun, most when most are
backward          of one operator: a weight's gradient before it is added to its bucket, gradients of activations
messages          every activation and gradient that it receives in a step: room is made when the step begins
data              the batches of this step and of those that are read ahead

Between steps rank 0 fetches the whole model to evaluate it, where no worker holds it, or only with batch statistics of
its own: then it has no activations, but those that others have begun to send for the next step, which are not counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement, Reduction
from nfold.core.profile import Profile
from nfold.core.schedule import RankSchedule, Schedule, Segment
from nfold.core.tasks import Backward, ChunkTensor, Forward, Receive
from nfold.planning.costs.read_ahead import chunks_read, steps_ahead
from nfold.planning.inputs.facts import Facts, Proposal
from nfold.planning.reductions.statistics_groups import statistics_groups
from nfold.planning.scheduling.segments import INPUTS


def peak_memory_bytes(
    facts: Facts, proposal: Proposal, profile: Profile, working: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return the predicted peak memory of each rank.

    Args:
        facts: the question.
        proposal: an answer.
        profile: says what operators keep.
        working: bytes of activations and messages of each rank; None for an asynchronous proposal, whose workers
            compute whole chunks one at a time.
    """
    placement = proposal.placement
    nothing = (frozenset[str](),) * placement.world_size
    foreign = nothing if proposal.asynchrony else foreign_parameters(facts.graph, placement)
    sizes = facts.chunk_sizes(placement.num_chunks)
    passing = _passing_bytes(facts.graph, placement, sizes)
    read = [chunks_read(facts.graph, placement, rank) for rank in range(placement.world_size)]
    first, *others = (
        base_bytes(profile, rank, reads=bool(read[rank]))
        + _state_bytes(facts.graph, proposal, profile, rank, foreign[rank])
        + (snapshot_bytes(facts.graph, proposal, profile, rank) if facts.keeps_snapshots else 0)
        + _batch_bytes(facts.graph, profile, sizes, read[rank])
        + passing[rank]
        + (_whole_chunk_bytes(proposal, profile, sizes, rank) if working is None else working[rank])
        for rank in range(placement.world_size)
    )
    return max(first, evaluation_bytes(facts, proposal, profile)), *others


def evaluation_bytes(facts: Facts, proposal: Proposal, profile: Profile) -> int:
    """Return what rank 0 holds while it evaluates a model that no worker has whole; 0 where that does not happen."""
    if not facts.evaluates or not _is_fetched(facts.graph, proposal):
        return 0
    weights = sum(each.num_bytes for each in facts.graph.parameters)
    return base_bytes(profile, 0) + held_bytes(facts.graph, proposal, profile, 0) + weights


def base_bytes(profile: Profile, rank: int, *, reads: bool = True) -> int:
    """Return the bytes that a rank's process holds without a model, with those of its loaders if it reads samples."""
    held = profile.process_bytes if reads else profile.base_bytes
    return held + (profile.tracer_bytes if rank == profile.profiler else 0)


def _is_fetched(graph: ModelGraph, proposal: Proposal) -> bool:
    """Return whether the model is whole nowhere: of asynchronous workers each has batch statistics of its own."""
    if proposal.asynchrony:
        return bool(statistics_groups(graph, proposal.placement))
    foreign = foreign_parameters(graph, proposal.placement)
    return bool(proposal.splits) or any(foreign[rank] for rank in proposal.placement.working)


def held_bytes(graph: ModelGraph, proposal: Proposal, profile: Profile, rank: int) -> int:
    """Return the bytes that a rank holds all the time: weights, gradients, optimizer state, and receive buffers."""
    nothing = frozenset[str]()
    foreign = nothing if proposal.asynchrony else foreign_parameters(graph, proposal.placement)[rank]
    return _state_bytes(graph, proposal, profile, rank, foreign)


def foreign_parameters(graph: ModelGraph, placement: Placement) -> tuple[frozenset[str], ...]:
    """Return for each rank the parameters that only other ranks need. All ranks keep what nobody uses."""
    everyone = tuple(range(placement.world_size))
    needed = {each.name: placement.ranks_of(each.users) if each.users else everyone for each in graph.parameters}
    return tuple(frozenset(name for name, owners in needed.items() if rank not in owners) for rank in everyone)


def kept_bytes(rank: RankSchedule, saved: Mapping[str, float], sizes: Sequence[int]) -> float:
    """Return the most that a rank keeps at once from forward to backward, in the order in which it computes."""
    passes = (
        (isinstance(task, Backward), task.segment, task.chunk)
        for task in rank.tasks
        if isinstance(task, (Forward, Backward))
    )
    return most_kept(passes, rank.segments, saved, sizes)


def most_kept(
    passes: Iterable[tuple[bool, int, int]],
    segments: Sequence[Segment],
    saved: Mapping[str, float],
    sizes: Sequence[int],
) -> float:
    """Return the most bytes that a rank keeps at once for its backwards.

    Args:
        passes: in their order: (whether it is a backward, index of the segment, chunk).
        segments: of the rank; one without a backward keeps nothing when its forward has ended.
        saved: bytes per sample that each operator keeps for its backward.
        sizes: samples of each chunk.
    """
    each = [
        sum(saved.get(name, 0.0) for name in segment.operators) if segment.backward else 0.0 for segment in segments
    ]
    now = most = 0.0
    for is_backward, segment, chunk in passes:
        now += (-1 if is_backward else 1) * each[segment] * sizes[chunk]
        most = max(most, now)
    return most


def working_bytes(schedule: Schedule, profile: Profile, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return what activations and messages of a schedule take on each rank at its peak."""
    saved = profile.saved_bytes()
    return tuple(round(kept_bytes(rank, saved, sizes)) + _received_bytes(rank) for rank in schedule.ranks)


def _received_bytes(rank: RankSchedule) -> int:
    received = (task for task in rank.tasks if isinstance(task, Receive))
    return sum(task.payload_bytes for task in received if isinstance(task.data, ChunkTensor))


def _whole_chunk_bytes(proposal: Proposal, profile: Profile, sizes: tuple[int, ...], rank: int) -> int:
    return round(profile.activation_bytes_per_sample * max(sizes)) if rank < proposal.workers else 0


def _batch_bytes(graph: ModelGraph, profile: Profile, sizes: tuple[int, ...], read: frozenset[int]) -> int:
    """The samples of the chunks that a rank reads, of all steps that are there at once."""
    inputs = [tensor for tensor in graph.tensors if tensor.name in INPUTS]
    per_sample = sum(tensor.bytes_per_sample for tensor in inputs)
    steps = 1 + steps_ahead(profile.loaders, len(read)) if read else 0
    return round(steps * per_sample * sum(sizes[chunk] for chunk in read))


def _passing_bytes(graph: ModelGraph, placement: Placement, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The most that the backward of one of each rank's operators makes and soon lets go. O(cells)."""
    weights = {each.name: each.num_bytes for each in graph.parameters if each.trainable and each.has_gradient}
    gradients = {each.name: each.bytes_per_sample for each in graph.tensors if each.requires_grad}
    most = [0.0] * placement.world_size
    for operator in graph.operators:
        weight = max((weights.get(name, 0) for name in operator.parameters), default=0)
        beside = sum(gradients.get(name, 0.0) for name in (*operator.inputs, *operator.outputs))
        for rank, size in set(zip(placement.owners[operator.name], sizes, strict=True)):
            if size:
                most[rank] = max(most[rank], size * beside + weight)
    return tuple(round(each) for each in most)


def _state_bytes(graph: ModelGraph, proposal: Proposal, profile: Profile, rank: int, foreign: frozenset[str]) -> int:
    """Parameters, gradients, optimizer state and receive buffers of one rank."""
    total = sum(reduction.num_bytes for reduction in proposal.reductions) or 1
    weights = sum(each.num_bytes for each in graph.parameters if each.name not in foreign)
    amount = float(weights * (2 if graph.averages_weights else 1))
    for reduction in proposal.reductions:
        amount += _bucket_bytes(reduction, profile.optimizer_bytes / total, rank)
        if proposal.asynchrony:
            amount += _copies_bytes(reduction, proposal.workers, rank)
    return round(amount)


def _copies_bytes(reduction: Reduction, workers: int, rank: int) -> int:
    """What a shard takes beyond a synchronous one: memory apart from its worker's, and values on their way to each."""
    served = sum(share.stop - share.start for share in reduction.shares if share.rank == rank) * reduction.item_bytes
    return (workers + (2 if rank < workers else 0)) * served


def snapshot_bytes(graph: ModelGraph, proposal: Proposal, profile: Profile, rank: int) -> int:
    """Return the bytes of the snapshots that a rank keeps, and of as many that it keeps for the rank before it.

    Two; three where some give to others what they alone have, and keep the one before until that is there.
    """
    gives = any(len(each.members) == 1 or each.route == "server" for each in proposal.reductions)
    world_size = proposal.placement.world_size
    alone = _lasting_bytes(graph, proposal, profile, (rank - 1) % world_size, is_alone=True) if world_size > 1 else 0.0
    return round((3 if gives else 2) * (_lasting_bytes(graph, proposal, profile, rank) + alone))


def _lasting_bytes(
    graph: ModelGraph, proposal: Proposal, profile: Profile, rank: int, *, is_alone: bool = False
) -> float:
    """Trained weights, averages and optimizer state of a rank, or only what no other one has."""
    trained = {name for reduction in proposal.reductions for name in reduction.parameters}
    total = sum(reduction.num_bytes for reduction in proposal.reductions) or 1
    everyone = tuple(range(proposal.placement.world_size))
    amount = 0.0
    is_asynchronous = proposal.asynchrony is not None
    of_served = profile.optimizer_bytes / total + is_asynchronous  # asynchronous shards give their values, too
    for each in () if is_asynchronous else graph.parameters:
        owners = proposal.placement.ranks_of(each.users) if each.users else everyone
        if rank in owners and (len(owners) == 1 or not is_alone):
            amount += each.num_bytes * ((each.name in trained) + graph.averages_weights)
    for reduction in proposal.reductions:
        served = sum(share.stop - share.start for share in reduction.shares if share.rank == rank)
        is_member = rank in reduction.members and (len(reduction.members) == 1 or not is_alone)
        held = served * reduction.item_bytes if reduction.route == "server" else reduction.num_bytes * is_member
        amount += held * of_served
    return amount


def _bucket_bytes(reduction: Reduction, state_per_byte: float, rank: int) -> float:
    """What a bucket adds to the weights themselves."""
    member = rank in reduction.members
    served = Counter({share.rank: 0 for share in reduction.shares})
    for share in reduction.shares:
        served[share.rank] += (share.stop - share.start) * reduction.item_bytes
    own, copies = served[rank], len(reduction.members) - 1
    wider = reduction.addend_bytes / reduction.item_bytes
    if reduction.route == "server":
        values_and_gradients = reduction.num_bytes if member else 2 * own
        summed = _exact_bytes(reduction, reduction.num_bytes if member else own)
        return values_and_gradients + summed + own * (state_per_byte + copies * wider)
    if not member:
        return 0.0
    received = copies / len(reduction.members) * wider if reduction.route == "ring" else 0.0
    return reduction.num_bytes * (1 + state_per_byte + received) + _exact_bytes(reduction, reduction.num_bytes)


def _exact_bytes(reduction: Reduction, held_bytes: int) -> float:
    """Whole numbers that gradients are summed as, and a copy of their sums for the optimizer; 0 without `--exact`."""
    if reduction.fraction_bits is None:
        return 0.0
    return held_bytes * (reduction.addend_bytes / reduction.item_bytes + 1)
