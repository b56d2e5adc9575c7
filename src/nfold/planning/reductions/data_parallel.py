"""What all strategies share that give each worker some chunks of the whole model."""

from nfold.core.chunks import filled_chunks
from nfold.core.placement import Placement, Reduction
from nfold.planning.inputs.chunk_counts import tell_filled
from nfold.planning.inputs.facts import Facts, Proposal
from nfold.planning.reductions.buckets import UNLIMITED_BYTES, fill_buckets

_MOST_NAMED = 8
NUM_BUCKETS = 4
LEAST_BUCKET_BYTES, MOST_BUCKET_BYTES = 1 << 20, 25 << 20
"""A bucket is a fourth of the gradients within these bounds: enough to overlap, not so many that latency counts."""


def serving_objection(facts: Facts) -> str | None:
    """Return why the optimizer cannot run on shards, or None."""
    if facts.servers and facts.graph.update_scope == "model":
        return f"{facts.graph.why_updated_whole}, so it cannot run on separate servers"
    if facts.graph.update_scope == "model" and facts.workers > 1:
        return f"{facts.graph.why_updated_whole}, so its work cannot be shared among servers"
    if facts.servers and (written := [each.name for each in facts.graph.parameters if each.written]):
        return f"forward itself writes to {written[0]}, and separate servers would not see it"
    return None


def data_parallel_objection(facts: Facts) -> str | None:
    """Return why the workers cannot share a batch, or None."""
    if facts.workers > 1 and facts.graph.indivisible:
        return f"the batch cannot be cut into chunks: {facts.graph.indivisible}"
    if facts.chunks is not None and facts.chunks < facts.workers:
        return tell_too_few_chunks(facts.workers, facts.chunks)
    if facts.batch_size < facts.workers:
        return f"{facts.workers} workers cannot share a batch of {facts.batch_size} samples"
    return tell_idle(facts)


def tell_idle(facts: Facts) -> str | None:
    """Return a note if some workers that share a batch get no sample of a full one; None: all get some.

    Where each trains on what lives on it, one may live on so few that many batches have none of them.
    """
    if facts.chunk_shares:
        return None
    workers, batch_size = facts.workers, facts.batch_size
    chunks = facts.chunks or workers
    filled = filled_chunks(batch_size, chunks, facts.graph.least_chunk)
    idle = workers - len(set(even_owners(chunks, workers)[:filled]))
    if not idle:
        return None
    return (
        f"{tell_filled(facts.graph, batch_size, chunks)}, so {idle} of {workers} workers would never have any; "
        f"{filled} at most can share it"
    )


def tell_too_few_chunks(workers: int, chunks: int) -> str:
    """Say that data parallelism needs a chunk for each worker."""
    return f"{workers} workers cannot share {chunks} chunk{'s' if chunks != 1 else ''}"


def data_parallel(facts: Facts, owners: tuple[int, ...], reductions: tuple[Reduction, ...]) -> Proposal:
    """Let workers compute chunks of the whole model; its notes say who has none.

    Args:
        facts: what was asked.
        owners: worker of each chunk.
        reductions: among those that have some.
    """
    placement = Placement(
        num_chunks=len(owners),
        world_size=facts.workers + facts.servers,
        owners={operator.name: owners for operator in facts.graph.operators},
    )
    return Proposal(
        placement=placement,
        reductions=reductions,
        workers=facts.workers,
        servers=facts.servers,
        notes=_idle_notes(facts, owners),
    )


def _idle_notes(facts: Facts, owners: tuple[int, ...]) -> tuple[str, ...]:
    idle = sorted(set(range(facts.workers)) - set(owners))
    named = ", ".join(f"rank {rank} on {facts.nodes[rank]}" for rank in idle[:_MOST_NAMED])
    more = f" and {len(idle) - _MOST_NAMED} more" if len(idle) > _MOST_NAMED else ""
    return (f"too slow for a chunk, which would hold up the others: {named}{more}",) if idle else ()


def bucket_bytes(facts: Facts) -> int:
    """Return the most bytes of a bucket.

    It depends on the model alone. Bucket borders decide in which order sums are taken, so timings must not move them.
    """
    return max(LEAST_BUCKET_BYTES, min(MOST_BUCKET_BYTES, facts.graph.parameter_bytes // NUM_BUCKETS))


def local_buckets(facts: Facts, rank: int = 0) -> tuple[Reduction, ...]:
    """Return one purely local bucket per parameter type: nothing is sent, one rank updates."""
    return fill_buckets(facts.graph, (rank,), "local", UNLIMITED_BYTES)


def even_owners(num_chunks: int, workers: int) -> tuple[int, ...]:
    """Give each worker a run of chunks, as equal as possible."""
    return tuple(chunk * workers // num_chunks for chunk in range(num_chunks))
