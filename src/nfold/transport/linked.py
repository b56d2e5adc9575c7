"""Turns one link per peer into a `Transport`."""

import time
from collections.abc import Callable, Mapping, Sequence

from nfold.errors import InternalError
from nfold.transport.base import Done, OnFailure
from nfold.transport.framing import Kind, flat
from nfold.transport.inbox import MAX_EARLY_BYTES, Inbox
from nfold.transport.link import Carrier, Link
from nfold.transport.losses import Losses

LINGER_S = 1.0
"""How long `close` waits for all peers together to take what is queued and to answer."""


class LinkedTransport:
    """Moves bytes between ranks over one link per peer.

    `done` may be called inside `send` and `receive`; call neither while holding a lock that `done` or the failure
    callback takes.
    """

    def __init__(
        self,
        rank: int,
        carries: Mapping[int, Callable[[Link], Carrier]],
        max_early_bytes: int = MAX_EARLY_BYTES,
        delays_s: Sequence[float] = (),
    ) -> None:
        """Args:
        rank: our own.
        carries: make what moves the bytes of the link to every other rank.
        max_early_bytes: the longest message that is kept before its receive is posted.
        delays_s: how much later to deliver what each rank sent, by rank; empty: at once.
        """
        self.rank = rank
        self.world_size = len(carries) + 1
        self._losses = Losses(rank)
        self._links = {
            peer: Link(peer, carry, Inbox(max_early_bytes), self._losses.report, delays_s[peer] if delays_s else 0.0)
            for peer, carry in sorted(carries.items())
        }

    @property
    def sent_bytes(self) -> int:
        """Payload bytes handed over so far, headers left out."""
        return sum(link.sent_bytes for link in self._links.values())

    @property
    def received_bytes(self) -> int:
        """Payload bytes received so far, headers left out."""
        return sum(link.received_bytes for link in self._links.values())

    def send(self, peer: int, tag: int, data: memoryview, done: Done) -> None:
        """Send bytes. They must not change until `done`."""
        self._link(peer).send(tag, flat(data), done)

    def receive(self, peer: int, tag: int, into: memoryview, done: Done) -> None:
        """Receive exactly as many bytes as `into` holds."""
        self._link(peer).receive(tag, flat(into), done)

    def on_failure(self, callback: OnFailure) -> None:
        """Set who is told that a peer is lost; told at once if one already is."""
        self._losses.tell(callback)

    def limit_unsent(self, peer: int, num_bytes: int | None) -> None:
        """Hear how much may wait outside of our hands on the way to a peer."""
        self._link(peer).limit_unsent(num_bytes)

    def silent_s(self) -> dict[int, float]:
        """Return for how long each peer's machine has given no sign of life."""
        return {peer: link.silent_s() for peer, link in self._links.items()}

    def close(self) -> None:
        """Send what is queued, say goodbye, and let go of connections and threads."""
        self._leave(Kind.GOODBYE)

    def abort(self) -> None:
        """Leave at once: all peers see this rank as lost."""
        self._leave(Kind.ABORT)

    def _leave(self, last_word: Kind) -> None:
        self._losses.silence()
        links, deadline_s = self._links.values(), time.monotonic() + LINGER_S
        for link in links:
            link.begin_close(last_word)
        for link in links:
            link.finish_close(deadline_s)

    def _link(self, peer: int) -> Link:
        if peer not in self._links:
            raise InternalError(f"rank {self.rank} of {self.world_size} has no connection to rank {peer}")
        return self._links[peer]
