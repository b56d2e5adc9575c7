"""Lets all ranks agree on one norm of all gradients, in messages of eight bytes.

    every rank      NORM b    sums the squares of its part of each bucket, once the bucket is summed
    others ──────>  squares   to the lowest rank that updates anything
    lowest rank     NORM      adds them in the order of the ranks and finds the factor
    others <──────  factor    so all clip by the same bits, whatever processors and threads they have

Each element is counted once: by its only owner, by the rank that serves it, or, round a ring, where all members have
the sum, by the member whose share it is. Members count after their last receive, also those whose share is empty, so
when the factor is known no gradient is still being sent, and gradients may be scaled where they lie.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nfold.core.placement import Reduction, Share
from nfold.core.schedule import Task
from nfold.planning.reductions.reduction_messages import Events, MessageWriter, equal_shares

SQUARES, FACTOR = "squares", "factor"
"""Buffers: a sum of squares for each rank, and what gradients are multiplied by."""
ITEM_BYTES = 8


@dataclass(frozen=True, slots=True)
class SumOfSquares:
    """Elements of a bucket that a rank updates, and the events after which their gradients are summed there."""

    reduction: Reduction
    share: Share
    after: Events


def agree_on_norm(sums: Sequence[SumOfSquares], network: MessageWriter, add: Callable[..., Task]) -> dict[int, Events]:
    """Add what it takes that every rank that updates anything knows the factor.

    Args:
        sums: of all ranks.
        network: takes the messages, 2 (ranks - 1) of them.
        add: adds a compute task to a rank.

    Returns:
        For each of these ranks the events after which it knows.
    """
    counted: dict[int, list[int]] = {}
    for each in sums:
        counted.setdefault(each.share.rank, []).append(_count(each, add).id)
    if not counted:
        return {}
    first, *others = sorted(counted)
    arrived = list(counted[first])
    for rank in others:
        _, receive = network.pair(rank, first, _fields(SQUARES, rank), tuple(counted[rank]))
        arrived.append(receive.id)
    agreed = add(first, "UPDATE", name="NORM", purpose="norm", buffer=FACTOR, after=tuple(arrived))
    known: dict[int, Events] = {first: (agreed.id,)}
    for rank in others:
        _, receive = network.pair(first, rank, _fields(FACTOR, 0), (agreed.id,))
        known[rank] = (receive.id,)
    return known


def _count(each: SumOfSquares, add: Callable[..., Task]) -> Task:
    reduction, share = each.reduction, each.share
    if reduction.route == "ring":
        shares = equal_shares(reduction.num_elements, reduction.members)
        share = shares[reduction.members.index(share.rank)]
    return add(
        share.rank,
        "UPDATE",
        name=f"NORM {reduction.name}",
        purpose="norm",
        buffer=SQUARES,
        reduction=reduction.name,
        start=share.start,
        stop=share.stop,
        after=each.after,
    )


def _fields(buffer: str, index: int) -> dict[str, object]:
    return {
        "purpose": "norm",
        "reduction": "",
        "buffer": buffer,
        "start": index,
        "stop": index + 1,
        "payload_bytes": ITEM_BYTES,
    }
