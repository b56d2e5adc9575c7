"""Moves bytes between ranks over plain TCP: a full mesh of proven connections, no pickle."""

import socket
from collections.abc import Mapping, Sequence
from functools import partial

from nfold.errors import ClusterError
from nfold.transport.framing import Kind
from nfold.transport.inbox import MAX_EARLY_BYTES
from nfold.transport.linked import LinkedTransport
from nfold.transport.listener import Address, Listener
from nfold.transport.loop import Loop
from nfold.transport.mesh import MeshOrder, form_mesh
from nfold.transport.socket_carrier import SocketCarrier

__all__ = ["Address", "Listener", "TcpTransport", "connect_mesh"]


class TcpTransport(LinkedTransport):
    """Moves bytes over one TCP connection per peer; one thread serves all. Make one with `connect_mesh`."""

    def __init__(
        self,
        rank: int,
        connections: Mapping[int, socket.socket],
        max_early_bytes: int = MAX_EARLY_BYTES,
        delays_s: Sequence[float] = (),
    ) -> None:
        self._loop = Loop("nfold-io")
        carries = {peer: partial(SocketCarrier, self._loop, connection) for peer, connection in connections.items()}
        super().__init__(rank, carries, max_early_bytes, delays_s)

    def _leave(self, last_word: Kind) -> None:
        super()._leave(last_word)
        self._loop.close()


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
