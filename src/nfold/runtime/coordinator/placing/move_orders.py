"""The orders by which samples move among ranks, and what ranks tell of it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nfold.core import codec
from nfold.core.residency import NodeData, SampleMove, Spans
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.placing.residing import brought_order


def move_orders(
    members: Sequence[NodeData],
    numbers: Sequence[int],
    moves: Sequence[SampleMove],
    needed: Sequence[Spans],
    examples: Sequence[Spans] = (),
) -> list[cmd.Order]:
    """Return the orders to move samples before ranks train, one for each rank.

    Args:
        members: all that the run has had.
        numbers: of the member that is each rank.
        moves: of all nodes.
        needed: what each rank keeps whatever has no room.
        examples: what each rank is to look at first; empty: what it has looked at so far.
    """
    order = {
        "do": "move",
        "members": list(numbers),
        "moves": [codec.encode(move) for move in moves],
        **brought_order(members),
    }
    own = [{"needed": each, "examples": examples[rank] if examples else ()} for rank, each in enumerate(needed)]
    return [cmd.Order((rank,), {**order, **each}) for rank, each in enumerate(own)]


def moved_of(replies: Iterable[Mapping[str, Any]]) -> cmd.Moved:
    """Return what has moved, by what each rank told of one order."""
    told = list(replies)
    num_bytes = sum(reply["bytes"] for reply in told)
    return cmd.Moved(num_bytes, max(reply["seconds"] for reply in told), beside_training=False)


def added(moved: cmd.Moved, more: cmd.Moved) -> cmd.Moved:
    """Return what has moved by orders that followed each other."""
    return cmd.Moved(moved.num_bytes + more.num_bytes, moved.seconds + more.seconds, beside_training=False)
