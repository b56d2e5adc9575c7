"""A few messages of one rank, of which each can be waited for."""

import threading
from collections.abc import Callable, Collection

from nfold.errors import TransportError
from nfold.transport.protocol import OnFailure, Transport

WAIT_S = 600.0


class Exchange:
    """Messages that one rank sends and receives between two steps."""

    def __init__(self, transport: Transport, tell: Callable[[OnFailure], None] | None = None) -> None:
        """Args:
        transport: between the ranks.
        tell: says who is told of a lost peer; `transport.on_failure` unless given, which has room for one only.
        """
        self._transport = transport
        self._changed = threading.Condition()
        self._begun = 0
        self._left: set[int] = set()
        self._failure: TransportError | None = None
        (tell or transport.on_failure)(self.fail)

    def send(self, peer: int, tag: int, data: bytes | memoryview) -> int:
        """Begin to send bytes to a peer; return a number to `wait` for."""
        number = self._expect()
        self._transport.send(peer, tag, memoryview(data), lambda: self._one_done(number))
        return number

    def receive(self, peer: int, tag: int, into: bytearray | memoryview) -> int:
        """Begin to receive bytes of a peer; return a number to `wait` for."""
        number = self._expect()
        self._transport.receive(peer, tag, memoryview(into), lambda: self._one_done(number))
        return number

    def wait(self, numbers: Collection[int] | None = None, *, for_ever: bool = False) -> None:
        """Wait for some messages, or for all.

        Args:
            numbers: which; None: all that have begun.
            for_ever: instead of WAIT_S.

        Raises:
            TransportError: a peer is lost, or they did not come in time.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure is not None or not self._missing(numbers), None if for_ever else WAIT_S
            )
            missing = self._missing(numbers)
        if self._failure is not None:
            raise self._failure
        if missing:
            raise TransportError(f"{missing} messages of a gather did not arrive within {WAIT_S:.0f} s")

    def fail(self, error: TransportError) -> None:
        """Let whoever waits, now or later, raise this error."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _missing(self, numbers: Collection[int] | None) -> int:
        return len(self._left) if numbers is None else len(self._left.intersection(numbers))

    def _expect(self) -> int:
        with self._changed:
            self._begun += 1
            self._left.add(self._begun)
            return self._begun

    def _one_done(self, number: int) -> None:
        with self._changed:
            self._left.discard(number)
            self._changed.notify_all()
