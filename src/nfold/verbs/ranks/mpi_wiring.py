"""Ways through MPI, for a rank that is in it."""

import threading
from collections.abc import Mapping

from nfold.transport.connecting.listener import Address
from nfold.transport.implementations.mpi_transport import MpiConnections
from nfold.transport.links.mpi_loop import MpiLoop, Peer


class MpiWiring:
    """A way to each member, which is there as soon as both ask for it."""

    def __init__(self, member: int, loop: MpiLoop) -> None:
        """Args:
        member: this process.
        loop: that speaks MPI.
        """
        self._loop = loop
        self._connections = MpiConnections(member, loop)

    def listen(self) -> Address:
        """Return no host, since nobody dials, and in place of a port the number of this process in MPI."""
        return "", self._loop.rank

    @property
    def connections(self) -> MpiConnections:
        """The ways to other members."""
        return self._connections

    def connect(self, addresses: Mapping[int, Address], stop: threading.Event) -> None:
        """Let ways lead to those members that none leads to yet. MPI connects when it sends: nothing is waited for."""
        self._connections.meet({member: Peer(rank) for member, (_, rank) in addresses.items()})
