"""A rank's sign of life, from a thread of its own: a long step is no silence, a process that is stopped is.

It also tells which other ranks are not heard, since the network between ranks may be cut where the one to the
coordinator is not, and what this rank has done for far too long.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from nfold.runtime.control.channel import ALIVE, ChannelClosed, ControlChannel, Message
from nfold.runtime.failures.network_cuts import QUIET_S
from nfold.runtime.rank.rank_tools import Wiring
from nfold.transport.connecting.listener import Address
from nfold.transport.generations.connections import Connections

BEAT_S = 2.0


class Heartbeat:
    """Shows on a channel that this process lives, until the channel is closed."""

    def __init__(self, channel: ControlChannel, period_s: float = BEAT_S) -> None:
        self._channel, self._period_s = channel, period_s
        self._silent_s: Callable[[], dict[int, float]] = dict
        self._stall: Callable[[], Message | None] = lambda: None
        self._told = False
        self.thread = threading.Thread(target=self._beat, name="nfold-heartbeat", daemon=True)
        self.thread.start()

    def watch(self, silent_s: Callable[[], dict[int, float]]) -> None:
        """Report silent peers from now on.

        Args:
            silent_s: returns the seconds since each peer was heard.
        """
        self._silent_s = silent_s

    def watch_tasks(self, stall: Callable[[], Message | None]) -> None:
        """Report from now on what takes far too long.

        Args:
            stall: returns that; None: nothing does.
        """
        self._stall = stall

    def _beat(self) -> None:
        never = threading.Event()
        while not never.wait(self._period_s):
            try:
                self._channel.send(self._sign())
            except ChannelClosed:
                return

    def _sign(self) -> Message:
        """Return what to say: who is silent, what takes too long, once more when that is over, else that we live."""
        quiet = [[peer, seconds] for peer, seconds in self._silent_s().items() if seconds >= QUIET_S]
        stall = self._stall()
        before, self._told = self._told, bool(quiet or stall)
        return {**ALIVE, "silent_s": quiet, "stall": stall} if self._told or before else ALIVE


class WatchedWiring:
    """A wiring whose connections the heartbeat watches."""

    def __init__(self, wiring: Wiring, heartbeat: Heartbeat) -> None:
        self._wiring, self._heartbeat = wiring, heartbeat

    def listen(self) -> Address:
        """Return the address at which other members reach this one."""
        address = self._wiring.listen()
        self._heartbeat.watch(self._wiring.connections.silent_s)
        return address

    @property
    def connections(self) -> Connections[Any]:
        """The connections to other members, once this one listens."""
        return self._wiring.connections

    def connect(self, addresses: Mapping[int, Address], stop: threading.Event) -> None:
        """Connect to those members that there is no connection to yet."""
        self._wiring.connect(addresses, stop)
