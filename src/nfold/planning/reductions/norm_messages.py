"""Lets all ranks agree on one norm of all gradients, in messages of eight bytes, or of 32 where they are exact.

    every rank      NORM b    sums the squares of its part of each bucket, once the bucket is summed
    others ──────>  squares   to the lowest rank that updates anything
    lowest rank     NORM      adds them in the order of the ranks and finds the factor
    others <──────  factor    so all clip by the same bits, whatever processors and threads they have

Each element is counted once: by its only owner, by the rank that serves it, or, round a ring, where all members have
the sum, by the member whose share it is, or, of whole numbers, that has summed it. Members count after their last
receive, also those whose share is empty, so when the factor is known no gradient is still being sent, and gradients may
be scaled where they lie.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nfold.core.placement import Reduction, Share
from nfold.core.tasks import Elements, FindClipFactor, SumSquares
from nfold.planning.reductions.ring_and_server_messages import Events, MessageWriter, PlannedMessage
from nfold.planning.reductions.shares import equal_shares

FACTOR = Elements("norm", "factor", 0, 1)
"""What gradients are multiplied by."""
ITEM_BYTES = 8
DIGITS = 4
"""Numbers of 48 bits that an exact sum of squares is sent as; see `runtime/parameters/fixed_point.py`."""


def squares(first: int, last: int, width: int = 1) -> Elements:
    """Return the elements that hold the sums of squares of ranks [first, last), so many numbers each."""
    return Elements("norm", "squares", width * first, width * last)


def width_of(reductions: Iterable[Reduction]) -> int:
    """Return how many numbers a rank's sum of squares is: one, or the digits of a whole number (`--exact`)."""
    return DIGITS if any(each.fraction_bits is not None for each in reductions) else 1


@dataclass(frozen=True, slots=True)
class SummedPart:
    """Elements of a bucket that a rank updates, and the events after which their gradients are summed there."""

    reduction: Reduction
    share: Share
    after: Events

    @property
    def gradients(self) -> Elements:
        """The elements of the gradient buffer that hold the sums."""
        return Elements("gradient", self.reduction.name, self.share.start, self.share.stop)


def agree_on_norm(sums: Sequence[SummedPart], network: MessageWriter, add: Callable[..., Any]) -> dict[int, Events]:
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
    width = width_of(each.reduction for each in sums)
    arrived = list(counted[first])
    for rank in others:
        own = squares(rank, rank + 1, width)
        _, receive = network.send(PlannedMessage(rank, first, "norm", own, width * ITEM_BYTES), tuple(counted[rank]))
        arrived.append(receive.id)
    agreed = add(first, FindClipFactor, after=tuple(arrived))
    known: dict[int, Events] = {first: (agreed.id,)}
    for rank in others:
        _, receive = network.send(PlannedMessage(first, rank, "norm", FACTOR, ITEM_BYTES), (agreed.id,))
        known[rank] = (receive.id,)
    return known


def _count(each: SummedPart, add: Callable[..., Any]) -> SumSquares:
    reduction, rank = each.reduction, each.share.rank
    if reduction.route == "ring":
        shares = equal_shares(reduction.num_elements, reduction.members)
        place = reduction.members.index(rank)
        if reduction.fraction_bits is not None:  # the whole numbers are complete where the ring's reduction ends
            place = (place + 1) % len(shares)
        each = replace(each, share=shares[place])
    counted: SumSquares = add(rank, SumSquares, gradients=each.gradients, after=each.after)
    return counted
