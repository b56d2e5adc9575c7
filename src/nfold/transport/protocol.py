"""What ranks talk through: tagged messages between pairs, and who failed."""

from collections.abc import Callable
from typing import Protocol

from nfold.errors import TransportError

Done = Callable[[], None]
OnFailure = Callable[[TransportError], None]


class Transport(Protocol):
    """Moves bytes between the ranks of one generation.

    Both calls return at once; `done` is called once, from a thread of the transport or, when nothing is left to wait
    for, inside the call itself. So make calls without holding a lock that `done` or the failure callback takes. `done`
    must not block on another message; if it raises, the peer counts as lost. Messages with different tags may overtake
    each other; a (peer, tag) pair is used once per direction. A message that arrives before its receive is posted is
    kept. After a failure no pending `done` is called; `on_failure` is, once per lost peer.

    A peer that closes is not lost by that: it is once a receive waits for it in vain or something is sent to it.

    Once a later generation has begun, this one's messages are thrown away, and what is still asked of it does nothing.
    Nothing is written any more to what its receives were posted for. A `done` may still be under way then.
    """

    rank: int
    world_size: int

    @property
    def sent_bytes(self) -> int:
        """Payload bytes handed over so far, headers and samples that move left out."""
        ...

    @property
    def received_bytes(self) -> int:
        """Payload bytes received so far, headers and samples that move left out."""
        ...

    def send(self, peer: int, tag: int, data: memoryview, done: Done) -> None:
        """Send bytes. They must not change until `done`.

        Args:
            peer: another rank.
            tag: of `nfold.transport.tags`, without a generation.
            data: what to send.
            done: called once the bytes may change.

        Raises:
            InternalError: no way leads to that rank.
            TransportError: this process has closed its connections.
        """
        ...

    def receive(self, peer: int, tag: int, into: memoryview, done: Done) -> None:
        """Receive exactly `len(into)` bytes.

        A message of another length is a failure of the peer.

        Args:
            peer: another rank.
            tag: as for `send`.
            into: where the bytes go; nobody else may use it until `done`.
            done: called once they are there.

        Raises:
            InternalError: no way leads to that rank.
            TransportError: this process has closed its connections.
        """
        ...

    def on_failure(self, callback: OnFailure) -> None:
        """Set who is told that a peer is lost; told at once if one already is."""
        ...

    def limit_unsent(self, peer: int, num_bytes: int | None) -> None:
        """Limit what may wait in the kernel on the way to a peer: that goes in its own order, not in ours.

        Args:
            peer: a connected rank.
            num_bytes: about so much at most; None: as much as the way takes by itself.
        """
        ...


class Way(Protocol):
    """Messages between this process and one other, of any generation. Tags have their generation on top."""

    def send(self, tag: int, data: memoryview, done: Done) -> None:
        """Send bytes; see `Transport.send`."""
        ...

    def receive(self, tag: int, into: memoryview, done: Done) -> None:
        """Receive exactly as many bytes as `into` holds; see `Transport.receive`."""
        ...

    def limit_unsent(self, num_bytes: int | None) -> None:
        """Limit what may wait in the kernel; see `Transport.limit_unsent`."""
        ...

    def silent_s(self) -> float:
        """Return for how long the peer's machine has given no sign of life; 0 where that cannot be told.

        Machines answer for programs that are busy or stopped, so more than a few seconds mean that nothing passes
        between the two.
        """
        ...

    def sent_bytes(self, generation: int) -> int:
        """Return the payload bytes of a generation that were handed over so far."""
        ...

    def received_bytes(self, generation: int) -> int:
        """Return the payload bytes of a generation that were received so far."""
        ...

    def forget_before(self, generation: int) -> None:
        """Throw away all messages of earlier generations: those that wait, and those that are still to come."""
        ...
