"""Moves bytes between members over TCP, encrypted where the token says so: a full mesh of proven connections."""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile

from nfold.transport.connecting.listener import Address, Listener
from nfold.transport.connecting.mesh import MeshOrder, form_mesh
from nfold.transport.connecting.tls_socket import TlsSocket
from nfold.transport.generations.connections import Connections
from nfold.transport.links.framing import Kind
from nfold.transport.links.inbox import MAX_EARLY_BYTES, Inbox
from nfold.transport.links.link import Carrier, Link
from nfold.transport.links.loop import Loop
from nfold.transport.links.tcp_carrier import SocketCarrier
from nfold.transport.links.tls_carrier import TlsCarrier

__all__ = ["Address", "Listener", "TcpConnections"]

LINGER_S = 1.0
"""How long `close` waits for all peers together to take what is queued and to answer."""


class TcpConnections(Connections[Link]):
    """One TCP connection per peer; one thread serves all.

    `done` may be called inside `send` and `receive`; call neither while holding a lock that `done` or the failure
    callback takes.
    """

    def __init__(
        self,
        member: int,
        token: str,
        *,
        delays_s: Mapping[int, float] | None = None,
        max_early_bytes: int = MAX_EARLY_BYTES,
    ) -> None:
        """Args:
        member: this process.
        token: the job's secret. Connections without it are dropped and do no harm.
        delays_s: how much later to deliver what a member sent; those who are not named: at once.
        max_early_bytes: the longest message that is kept before its receive is posted.
        """
        super().__init__(member)
        self._token, self._delays_s, self._max_early_bytes = token, delays_s or {}, max_early_bytes
        self._loop = Loop("nfold-io")

    def meet(
        self,
        listener: Listener,
        addresses: Mapping[int, Address],
        timeout_s: float,
        stop: threading.Event | None = None,
    ) -> None:
        """Connect to those members that no way leads to, or none that carries. They do the same at that time.

        Args:
            listener: where members behind us reach us. It stays open; its owner closes it.
            addresses: of members, in the order of all: who stands before this process is dialled, who stands behind it
                dials. Where it is not among them, lower numbers stand before it.
            timeout_s: how long to wait for all together.
            stop: ends the meeting when another thread sets it; None: nobody does. Who was met so far stays connected.

        Raises:
            TransportError: some member refused us or did not come in time; the message says which. Or it was ended.
        """
        for peer in self.lost.intersection(addresses):
            self.leave(peer)
        missing = {peer: at for peer, at in addresses.items() if peer != self.member and peer not in self.peers}
        dialled = set(takewhile(lambda peer: peer != self.member, addresses))
        if self.member not in addresses:
            dialled = {peer for peer in addresses if peer < self.member}
        order = MeshOrder(
            member=self.member, addresses=missing, dialled=dialled, token=self._token, timeout_s=timeout_s
        )
        form_mesh(listener, order, self.add, stop or threading.Event())

    def add(self, peer: int, connection: socket.socket) -> None:
        """Let a proven connection lead to a member."""
        carry, inbox = self._carrier_over(connection), Inbox(self._max_early_bytes)
        self._add(peer, Link(peer, carry, inbox, self._lose, self._delays_s.get(peer, 0.0)))

    def leave(self, peer: int) -> None:
        """Say goodbye to a member and close the way to it. No generation under way may have a rank there."""
        link = self._drop(peer)
        link.begin_close(Kind.GOODBYE)
        link.finish_close(time.monotonic() + LINGER_S)

    def close(self) -> None:
        """Send what is queued, say goodbye, and let go of connections and threads."""
        self._end(Kind.GOODBYE)

    def abort(self) -> None:
        """Leave at once: all peers see this member as lost."""
        self._end(Kind.ABORT)

    def _carrier_over(self, connection: socket.socket) -> Callable[[Link], Carrier]:
        if isinstance(connection, TlsSocket):
            return partial(TlsCarrier, self._loop, connection)
        return partial(SocketCarrier, self._loop, connection)

    def _end(self, last_word: Kind) -> None:
        self._silence()
        links, deadline_s = list(self._ways.values()), time.monotonic() + LINGER_S
        for link in links:
            link.begin_close(last_word)
        for link in links:
            link.finish_close(deadline_s)
        self._loop.close()
