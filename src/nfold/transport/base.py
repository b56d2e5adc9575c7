"""The one protocol that ranks talk through: tagged messages between pairs, and who failed."""

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
    """

    rank: int
    world_size: int

    @property
    def sent_bytes(self) -> int:
        """Payload bytes handed over so far, headers left out."""
        ...

    @property
    def received_bytes(self) -> int:
        """Payload bytes received so far, headers left out."""
        ...

    def send(self, peer: int, tag: int, data: memoryview, done: Done) -> None:
        """Send bytes. They must not change until `done`."""
        ...

    def receive(self, peer: int, tag: int, into: memoryview, done: Done) -> None:
        """Receive exactly `len(into)` bytes.

        A message of another length is a failure of the peer.
        """
        ...

    def on_failure(self, callback: OnFailure) -> None:
        """Set who is told that a peer is lost; told at once if one already is."""
        ...

    def limit_unsent(self, peer: int, num_bytes: int | None) -> None:
        """Hear how much may wait outside of our hands on the way to a peer: it goes in its own order, not in ours.

        Args:
            peer: a connected rank.
            num_bytes: about so much at most; None: as much as the way takes by itself.
        """
        ...

    def silent_s(self) -> dict[int, float]:
        """Return for how long each peer's machine has given no sign of life; 0 where that cannot be told.

        Machines answer for programs that are busy or stopped, so more than a few seconds mean that nothing passes
        between the two.
        """
        ...

    def close(self) -> None:
        """Send what is queued, say goodbye, and let go of sockets and threads."""
        ...

    def abort(self) -> None:
        """Leave at once: all peers see this rank as lost."""
        ...
