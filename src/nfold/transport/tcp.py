"""Moves bytes between ranks over plain TCP: a full mesh of proven connections, no pickle."""

import contextlib
import select
import socket
from collections.abc import Mapping, Sequence

from nfold.errors import ClusterError
from nfold.transport.framing import advance
from nfold.transport.inbox import MAX_EARLY_BYTES
from nfold.transport.keeping import keep_asking, silent_s
from nfold.transport.linked import LinkedTransport
from nfold.transport.listener import Address, Listener
from nfold.transport.mesh import MeshOrder, form_mesh

__all__ = ["Address", "Listener", "TcpTransport", "connect_mesh"]

MOST_UNSENT_BYTES = 256 << 10
"""That the kernel takes beyond what is on its way: what it has taken is sent in its own order, and not in ours."""
READ_AHEAD_BYTES = 16 << 10
"""Read at once when less is wanted, so that a small frame costs one system call instead of two."""
MOST_AT_ONCE_BYTES = 64 << 10
_BUFFER_PER_WAKE = 8
"""The kernel offers the sender half of its buffer, and less when segments are small: what is waited for must fit."""


class TcpTransport(LinkedTransport):
    """Moves bytes between ranks over one TCP connection per peer. Make one with `connect_mesh`."""

    def __init__(
        self,
        rank: int,
        connections: Mapping[int, socket.socket],
        max_early_bytes: int = MAX_EARLY_BYTES,
        delays_s: Sequence[float] = (),
    ) -> None:
        pipes = {peer: SocketPipe(connection) for peer, connection in connections.items()}
        super().__init__(rank, pipes, max_early_bytes, delays_s)


def connect_mesh(
    rank: int,
    world_size: int,
    listener: Listener,
    addresses: Sequence[Address],
    token: str,
    timeout_s: float,
    delays_s: Sequence[float] = (),
) -> TcpTransport:
    """Connect to all other ranks.

    Args:
        rank: of this process.
        world_size: how many ranks there are.
        listener: where the higher ranks reach us. It stays open; its owner closes it.
        addresses: of every rank, by rank.
        token: the job's secret. Connections without it are dropped and do no harm.
        timeout_s: how long to wait for all together.
        delays_s: how much later to deliver what each rank sent, by rank; empty: at once.

    Raises:
        TransportError: some rank refused us or did not come in time; the message says which.
        ClusterError: the numbers of addresses and ranks differ.
    """
    if len(addresses) != world_size or not 0 <= rank < world_size:
        raise ClusterError(f"rank {rank} of {world_size} was given the addresses of {len(addresses)} ranks")
    order = MeshOrder(rank=rank, addresses=addresses, token=token, timeout_s=timeout_s)
    return TcpTransport(rank, form_mesh(listener, order), delays_s=delays_s)


class SocketPipe:
    """A connected socket as a `Pipe`."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MOST_UNSENT_BYTES)
        keep_asking(connection)
        self._socket = connection
        self._ahead = memoryview(bytearray(READ_AHEAD_BYTES))
        self._start = 0
        self._end = 0
        self._wakes_at = 1
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)

    def read_into(self, target: memoryview) -> None:
        """Wait until the target is full."""
        filled = self._take(target)
        while filled < len(target):
            rest = target[filled:]
            if len(rest) >= READ_AHEAD_BYTES:
                self._fill(rest)
                filled = len(target)
            else:
                self._start, self._end = 0, self._receive(self._ahead, 0)
                filled += self._take(rest)

    def write(self, parts: Sequence[memoryview]) -> None:
        """Wait until the kernel has taken all parts."""
        while parts:
            parts = advance(parts, self._socket.sendmsg(parts))

    def try_write(self, parts: Sequence[memoryview]) -> int:
        """Write what the kernel takes without waiting."""
        try:
            return self._socket.sendmsg(parts, (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def silent_s(self) -> float:
        """Return for how long the peer's kernel has said nothing."""
        return silent_s(self._socket)

    def shutdown(self) -> None:
        """Break the connection; what the kernel has taken still goes out."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _take(self, target: memoryview) -> int:
        """Move bytes that were read ahead."""
        num_bytes = min(len(target), self._end - self._start)
        if num_bytes:
            target[:num_bytes] = self._ahead[self._start : self._start + num_bytes]
            self._start += num_bytes
        return num_bytes

    def _fill(self, target: memoryview) -> None:
        """Read many bytes, and wake up for some at a time: a slow link would wake us for every segment."""
        buffer_bytes = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        at_once = min(MOST_AT_ONCE_BYTES, buffer_bytes // _BUFFER_PER_WAKE)
        filled = 0
        while filled < len(target):
            self._wake_at(min(at_once, len(target) - filled))
            # A receive that waits takes part of it first, and may then wait for more than is still to come.
            self._readable.poll()
            with contextlib.suppress(BlockingIOError):  # the kernel may have had second thoughts
                filled += self._receive(target[filled:], socket.MSG_DONTWAIT)
        self._wake_at(1)

    def _wake_at(self, num_bytes: int) -> None:
        if num_bytes != self._wakes_at:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, num_bytes)
            self._wakes_at = num_bytes

    def _receive(self, target: memoryview, flags: int) -> int:
        num_bytes = self._socket.recv_into(target, 0, flags)
        if num_bytes == 0:
            raise ConnectionError("it closed the connection")
        return num_bytes
