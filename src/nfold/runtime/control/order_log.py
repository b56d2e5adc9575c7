"""The last orders that a rank has got, so that ranks which one of them has not reached can be given it later.

A coordinator numbers what it sends. A rank gets its orders in that sequence, so it has all that were for it, up to the
last one that has come. Where the coordinator dies between two sends, some have come further than others.
"""

from collections.abc import Sequence

from nfold.runtime.control.channel import Message

NUMBER = "order_number"
"""Of an order, in its message: one for all who are sent the same. A coordinator counts from 1."""
MOST = 32
"""Orders that are kept: with steps between them, some seconds of a run at least."""
_KEPT = frozenset({"until", "checkpoint", "evaluate", "model", "average", "protect", "deliver", "probe", "hand"})
"""Orders that make ranks wait for each other. The others a rank obeys alone, or they begin another generation."""


class OrderLog:
    """What one rank has got in one generation. One thread writes; any may read."""

    def __init__(self) -> None:
        self._last = self._since = 0
        self._orders: tuple[Message, ...] = ()

    def take(self, order: Message) -> None:
        """Take note of the next order that has come."""
        do, self._last = order["do"], order[NUMBER]
        if do == "connect":
            self._since = self._last
        elif do == "build":  # whoever has been told to build has got what was before
            self._orders = ()
        elif do in _KEPT and not order.get("beside"):
            before = self._orders
            if do == "until" and before and before[-1]["do"] == "until":
                before = before[:-1]  # who has got neither needs the later one only
            if len(before) == MOST:
                self._since = before[0][NUMBER]
            self._orders = (*before, order)[-MOST:]

    @property
    def told(self) -> Message:
        """What another coordinator is told."""
        return {"last_order": self._last, "since_order": self._since, "orders": list(self._orders)}


def are_known(hellos: Sequence[Message]) -> bool:
    """Whether ranks still know all orders that one of them has got and another one has not."""
    least: int = min(hello["last_order"] for hello in hellos)
    return all(hello["since_order"] <= least for hello in hellos)


def lacking(rank: int, hellos: Sequence[Message]) -> list[Message]:
    """Return the orders that other ranks have got and one has not, as they are for that one, in their sequence.

    Args:
        rank: in question.
        hellos: of all ranks, each with what `OrderLog.told` says.
    """
    own = hellos[rank]
    found = {
        order[NUMBER]: given
        for other, hello in enumerate(hellos)
        for order in hello["orders"]
        if order[NUMBER] > own["last_order"] and (given := _for_rank(rank, order, other, own["orders"]))
    }
    return [found[number] for number in sorted(found)]


def _for_rank(rank: int, order: Message, other: int, own: Sequence[Message]) -> Message | None:
    """Return an order that another rank has got as it is for this one; None: it is not, or has come.

    The two sides of a probe get an order each, and each rank one in a round.
    """
    if order["do"] != "probe":
        return order
    has_come = any(each["do"] == "probe" and each["round"] == order["round"] for each in own)
    if order["peer"] != rank or has_come:
        return None
    return {**order, "peer": other, "measures": not order["measures"]}
