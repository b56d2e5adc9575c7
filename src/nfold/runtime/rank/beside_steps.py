"""Does beside the steps what a next generation needs: meets newcomers, probes the way to them, lets one be a shadow.

One thread does one order after another, while another one trains. A later order ends the one under way: nobody waits
for its answer any more.
"""

import contextlib
import threading
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from nfold.core import codec
from nfold.core.placement import Reduction
from nfold.core.tasks import from_row
from nfold.errors import NfoldError, RunError, TransportError
from nfold.runtime.checkpoint.joined_facts import UNKEPT
from nfold.runtime.control.channel import ChannelClosed, ControlChannel, Message
from nfold.runtime.rank.process import Process
from nfold.runtime.rank.rank_of_generation import Rank
from nfold.runtime.rank.rank_tools import Tools, Wiring
from nfold.runtime.snapshots.lending import Lending
from nfold.runtime.snapshots.shadow import Shadow, ToFollow
from nfold.runtime.snapshots.state_reading import Source, StateReading
from nfold.runtime.step.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Callable

    from nfold.transport.generations.generation_transport import GenerationTransport


NOT_ALONE = "more than updates may change its model"


class BesideSteps:
    """The orders of one member that do not wait for its steps."""

    def __init__(self, channel: ControlChannel, wiring: Wiring, tools: Tools) -> None:
        self._channel, self._wiring, self._tools = channel, wiring, tools
        self._stop, self._thread = threading.Event(), threading.Thread()
        self._transport: GenerationTransport | None = None
        """Of the last probe."""
        self._orders: dict[str, Callable[[Message, threading.Event], Message]] = {
            "meet": self._meet,
            "probe": self._probe,
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """The orders that are understood."""
        return tuple(self._orders)

    def take(self, order: Message, _: bytes) -> None:
        """Begin to do something, from the thread that hears orders."""
        self._stop.set()
        self._stop, before = threading.Event(), self._thread
        given = (order, self._stop, before)
        self._thread = threading.Thread(target=self._do, args=given, name="nfold-beside", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End what is under way, and wait until it has ended: a generation begins."""
        self._stop.set()
        if self._transport is not None:
            self._wiring.connections.end_beside(self._transport)
        if self._thread.ident is not None:
            self._thread.join()

    def _do(self, order: Message, stop: threading.Event, before: threading.Thread) -> None:
        if before.ident is not None:
            before.join()
        told: Message = {"is": "beside", "ticket": order["ticket"], "found": None, "failed": ""}
        try:
            told |= self._orders[order["do"]](order, stop)
        except NfoldError as error:
            told["failed"] = str(error)
        if not stop.is_set():
            with contextlib.suppress(ChannelClosed):  # the coordinator is gone: who reads orders sees it
                self._channel.send(told)

    def _meet(self, order: Message, stop: threading.Event) -> Message:
        addresses = {member: (str(host), int(port)) for member, host, port in order["addresses"]}
        self._wiring.connect(addresses, stop)
        if lost := self._wiring.connections.lost.intersection(addresses):
            raise TransportError(f"its connection to member {min(lost)} is lost")
        return {}

    def _probe(self, order: Message, stop: threading.Event) -> Message:
        connections, measures = self._wiring.connections, order["measures"]
        transport = self._transport = connections.beside(order["generation"], order["members"])
        try:
            if stop.is_set():
                return {}
            found = self._tools.probe(transport, int(measures), measures=measures, patience_s=order["patience_s"])
        finally:
            connections.end_beside(transport)
        return {"found": codec.encode(found) if found else None}


def to_build(order: Message, *, owns_process: bool) -> list[Message]:
    """Return what a newcomer builds beside the steps of others, one after the other: what takes long, it keeps.

    Args:
        order: to build its part of the next plan, as which it may follow, or to follow with the whole model.
        owns_process: False: threads that train share torch with it, so it builds nothing that it does not follow with.
    """
    whole = order["whole"]
    part = {**order, "follows": order["follows"] and whole is None}
    parts = [part] if owns_process or part["follows"] else []
    return parts if whole is None else [*parts, {**order, **whole, "rank": 0, "world_size": 1}]


class Shadowing:
    """What one process does for a newcomer that is a shadow, or as that newcomer. One thread gives the orders."""

    def __init__(self, process: Process, wiring: Wiring) -> None:
        self._process, self._wiring = process, wiring
        self._lending: Lending | None = None
        self._borrower = -1
        """The member that it is given to."""
        self._rank: Rank | None = None
        """Of a newcomer, which is built and not connected."""
        self._shadow: Shadow | None = None
        self._transport: GenerationTransport | None = None
        """Between the newcomer and those who lend."""

    def lend(self, rank: Rank, order: Message) -> None:
        """Begin to give a newcomer the state of this step and the sums of those that follow; or end that."""
        self.end()
        if not order["members"]:
            return
        replica, step = rank.replica, rank.reached
        told: Message = {"step": step, "rows": [], "facts": {}, "sums": [], "failed": ""}
        if not isinstance(replica, Replica) or not rank.may_be_followed:
            self._tell("lent", order["ticket"], **told | {"failed": NOT_ALONE})
            return
        try:
            transport = self._transport = self._wiring.connections.beside(order["generation"], order["members"])
            reductions = tuple(codec.decode(Reduction, each) for each in order["reductions"])
            place = ((rank.transport.number, step), self._process.member)
            failed = partial(self._tell_lost, order["ticket"])
            self._lending = Lending(transport, replica, reductions, *place, failed)
            self._borrower = order["members"][0]
            told |= self._lending.told
            told["failed"] = told["facts"][UNKEPT]
        except Exception as error:  # torch's, where memory is short, too: it costs the newcomer alone
            self.end()
            told["failed"] = str(error) or type(error).__name__
        self._tell("lent", order["ticket"], **told)

    def await_order(self, rank: Rank) -> None:
        """Let a newcomer that has built be ready to follow."""
        self._rank = rank

    def follow(self, order: Message, header: bytes) -> None:
        """Let the newcomer follow the others, from their state on."""
        tell = partial(self._tell_step, order["ticket"])
        if self._rank is None or not self._rank.may_be_followed:
            tell(None, NOT_ALONE)
            return
        replica = self._rank.replica
        assert isinstance(replica, Replica), "it may follow"
        try:
            lent = tuple(tuple(map(from_row, sums)) for sums in order["sums"])
            if not replica.is_given([each for own in lent for each in own]):
                raise RunError("others do not give it all that a step changes")
            to_follow = ToFollow(
                label=tuple(order["state"]),
                header=header,
                lent=lent,
                bytes_per_s=order["bytes_per_s"],
                most_bytes=order["most_bytes"],
            )
            transport = self._transport = self._wiring.connections.beside(order["generation"], order["members"])
            reading = StateReading(transport, None, list(map(Source.from_row, order["sources"])))
            self._shadow = Shadow(transport, replica, reading, to_follow, tell)
        except Exception as error:  # it joins as others do
            self.abandon()
            tell(None, str(error) or type(error).__name__)

    def settle(self, members: Collection[int]) -> None:
        """Come to an end before a generation begins: the shadow is given what it lacks, and keeps its model.

        A shadow that has failed keeps none, and builds anew.
        """
        if self._lending is not None and self._borrower in members:
            self._lending.finish()
        if self._rank is not None:
            label = self._shadow.finish() if self._shadow is not None else None
            if self._shadow is None or label is not None:
                self._rank.keep(label)
            if self._shadow is not None and label is not None:
                self._process.followed_bytes = self._shadow.received_bytes
        self.end()

    def abandon(self) -> None:
        """Let all that waits for others fail; from any thread."""
        if (transport := self._transport) is not None:
            self._wiring.connections.end_beside(transport)

    def end(self) -> None:
        """Give nothing more, and follow nobody any more."""
        if self._lending is not None:
            self._lending.end()
        self.abandon()
        if self._shadow is not None:
            self._shadow.finish()
        if self._rank is not None:
            self._rank.close()
        self._lending = self._shadow = self._rank = self._transport = None

    def _tell_lost(self, ticket: Any, why: str) -> None:
        self._tell("lent", ticket, failed=why)

    def _tell_step(self, ticket: Any, step: int | None, why: str) -> None:
        self._tell("followed", ticket, step=step, failed=why)

    def _tell(self, what: str, ticket: Any, **told: Any) -> None:
        with contextlib.suppress(ChannelClosed):  # the coordinator is gone: who reads orders sees it
            self._process.channel.send({"is": what, "ticket": ticket, **told})
