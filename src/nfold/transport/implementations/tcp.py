"""Moves bytes between members over TCP, encrypted where the token says so: a full mesh of proven connections."""

import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile

from nfold.transport.connecting.listener import Address, Listener
from nfold.transport.connecting.mesh import MeshOrder, form_mesh
from nfold.transport.connecting.tls_socket import TlsSocket
from nfold.transport.implementations.over_links import LinkConnections
from nfold.transport.links.framing import Kind
from nfold.transport.links.inbox import MAX_EARLY_BYTES, Inbox
from nfold.transport.links.link import Carrier, Link
from nfold.transport.links.loop import Loop
from nfold.transport.links.tcp_carrier import SocketCarrier
from nfold.transport.links.tls_carrier import TlsCarrier

__all__ = ["Address", "Listener", "TcpConnections"]


class TcpConnections(LinkConnections):
    """One TCP connection per peer; one thread serves all."""

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
        delays_s: how much later to deliver what a member sent; those who are not named: at once. Its owner may
            name more before they are met.
        max_early_bytes: the longest message that is kept before its receive is posted.
        """
        super().__init__(member)
        self._token, self._max_early_bytes = token, max_early_bytes
        self._delays_s = {} if delays_s is None else delays_s
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

    def _divert(self) -> None:
        self._loop.do(self._divert_all)

    def _divert_all(self) -> None:
        for link in list(self._ways.values()):
            link.divert()

    def _carrier_over(self, connection: socket.socket) -> Callable[[Link], Carrier]:
        if isinstance(connection, TlsSocket):
            return partial(TlsCarrier, self._loop, connection)
        return partial(SocketCarrier, self._loop, connection)

    def _end(self, last_word: Kind) -> None:
        super()._end(last_word)
        self._loop.close()
