"""Turns any placement into the reductions that keep it the same training run."""

from nfold.core.placement import Placement, Reduction
from nfold.planning.inputs.facts import Facts, Proposal
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.reductions.data_parallel import bucket_bytes

_MOST_NAMED = 8


def reductions_of(facts: Facts, placement: Placement) -> tuple[Reduction, ...]:
    """Return the reductions of a placement, every trained parameter in exactly one.

    Parameters with the same owners (of a tied weight: all owners of all its users) share buckets as large as the model
    says, round a ring; what has one owner is updated there and not sent. O(parameters x chunks).
    """
    return buckets_of(facts.graph, placement, "ring", bucket_bytes(facts))


def placed(facts: Facts, owners: dict[str, tuple[int, ...]], notes: tuple[str, ...] = ()) -> Proposal:
    """Return the proposal of a table operator -> rank of each chunk, on all workers and no dedicated server.

    Its notes say whom it leaves idle.
    """
    num_chunks = len(next(iter(owners.values())))
    placement = Placement(num_chunks=num_chunks, world_size=facts.workers, owners=owners)
    return Proposal(
        placement=placement,
        reductions=reductions_of(facts, placement),
        workers=facts.workers,
        servers=0,
        notes=(*notes, *_idle(facts, placement)),
    )


def _idle(facts: Facts, placement: Placement) -> tuple[str, ...]:
    idle = sorted(set(range(facts.workers)) - set(placement.working))
    if not idle:
        return ()
    named = ", ".join(f"{rank} on {facts.nodes[rank]}" for rank in idle[:_MOST_NAMED])
    more = f" and {len(idle) - _MOST_NAMED} more" if len(idle) > _MOST_NAMED else ""
    return (f"left without work, since no division of this kind was found to be faster with them: rank {named}{more}",)
