"""Keeps samples off the links of a rank while a step's messages use them.

    messages of steps --> GatedTransport --> Transport
                               |
                               v
    pieces of samples --> Pacer, asks Gate --> Transport

A rank exchanges gradients from its first message of a step until it has sent and received all of them. Meanwhile none
of its samples leave, unless nothing has come or gone for longer than a message takes: then some rank still computes, or
waits for these very samples. What comes before a rank's own first message is no reason to wait: that rank computes, so
no exchange can end before it has, and what it sends takes the other direction of its link.
"""

import threading
import time
from collections.abc import Callable

from nfold.transport.protocol import Done, OnFailure, Transport


class Gate:
    """Says when samples may leave. Pure but for its clock; any thread may call."""

    def __init__(self, quiet_s: float, settle_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        quiet_s: an exchange in which nothing comes or goes for so long stands still.
        settle_s: for which what the kernel has taken of a step's messages may still use the link.
        clock: seconds.
        """
        self._quiet_s, self._settle_s, self._clock = quiet_s, settle_s, clock
        self.changed = threading.Condition()
        """Notified when an exchange has ended: samples may leave sooner than was said."""
        self._leaving = self._awaited = 0
        self._is_exchanging = False
        self._opens_s = clock()
        """Unless something comes or goes."""

    def begin_send(self) -> None:
        """Note that a step's message is to leave."""
        with self.changed:
            self._leaving += 1
            self._is_exchanging = True

    def end_send(self) -> None:
        """Note that one has left."""
        with self.changed:
            self._leaving -= 1
            self._look()

    def begin_receive(self) -> None:
        """Note that a step's message will come."""
        with self.changed:
            self._awaited += 1

    def end_receive(self) -> None:
        """Note that one has come."""
        with self.changed:
            self._awaited -= 1
            self._look()

    def waits_s(self) -> float:
        """Return for how long samples wait at least, unless `changed` is notified; 0: they may leave."""
        with self.changed:
            return self._quiet_s if self._leaving else max(0.0, self._opens_s - self._clock())

    def _look(self) -> None:
        if self._leaving:
            return
        if not self._awaited:
            self._is_exchanging = False
            self._opens_s = self._clock() + self._settle_s
            self.changed.notify_all()
        elif self._is_exchanging:
            self._opens_s = self._clock() + self._quiet_s


class GatedTransport:
    """The `Transport` of steps, which tells a gate what they send and receive."""

    def __init__(self, transport: Transport, gate: Gate) -> None:
        self._transport, self._gate = transport, gate
        self.rank, self.world_size = transport.rank, transport.world_size

    @property
    def sent_bytes(self) -> int:
        """See `Transport`."""
        return self._transport.sent_bytes

    @property
    def received_bytes(self) -> int:
        """See `Transport`."""
        return self._transport.received_bytes

    def send(self, peer: int, tag: int, data: memoryview, done: Done) -> None:
        """Send bytes, as `Transport.send` says."""

        def left() -> None:
            self._gate.end_send()
            done()

        self._gate.begin_send()
        self._transport.send(peer, tag, data, left)

    def receive(self, peer: int, tag: int, into: memoryview, done: Done) -> None:
        """Receive bytes, as `Transport.receive` says."""

        def came() -> None:
            self._gate.end_receive()  # before `done`, after which the next step may begin
            done()

        self._gate.begin_receive()
        self._transport.receive(peer, tag, into, came)

    def on_failure(self, callback: OnFailure) -> None:
        """Set who is told of a lost peer, as `Transport.on_failure` says."""
        self._transport.on_failure(callback)

    def limit_unsent(self, peer: int, num_bytes: int | None) -> None:
        """Limit what waits in the kernel, as `Transport.limit_unsent` says."""
        self._transport.limit_unsent(peer, num_bytes)
