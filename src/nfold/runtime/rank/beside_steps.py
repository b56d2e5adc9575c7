"""Does beside the steps what a next generation needs: meets newcomers, and probes the way to them.

One thread does one order after another, while another one trains. A later order ends the one under way: nobody waits
for its answer any more.
"""

import contextlib
import threading
from typing import TYPE_CHECKING

from nfold.core import codec
from nfold.errors import NfoldError
from nfold.runtime.control.channel import ChannelClosed, ControlChannel, Message
from nfold.runtime.rank.rank_tools import Tools, Wiring

if TYPE_CHECKING:
    from collections.abc import Callable


class BesideSteps:
    """The orders of one member that do not wait for its steps."""

    def __init__(self, channel: ControlChannel, wiring: Wiring, tools: Tools) -> None:
        self._channel, self._wiring, self._tools = channel, wiring, tools
        self._stop, self._thread = threading.Event(), threading.Thread()
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
        if self._thread.ident is not None:
            self._wiring.connections.end_beside()
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
        return {}

    def _probe(self, order: Message, stop: threading.Event) -> Message:
        connections, measures = self._wiring.connections, order["measures"]
        transport = connections.beside(order["generation"], order["members"])
        try:
            if stop.is_set():
                return {}
            found = self._tools.probe(transport, int(measures), measures=measures, patience_s=order["patience_s"])
        finally:
            connections.end_beside()
        return {"found": codec.encode(found) if found else None}
