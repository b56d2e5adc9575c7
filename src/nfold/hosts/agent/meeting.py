"""Agents meet each other as ranks would: the same ports, the same proof, the same probes."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nfold.errors import TransportError
from nfold.transport.connecting.listener import Address, Listener
from nfold.transport.implementations.tcp import TcpConnections
from nfold.transport.probing.probe import ProbedPair, Role, probe_pair
from nfold.transport.tags import Use, tag_of

if TYPE_CHECKING:
    from nfold.transport.protocol import Transport

MEETING_S = 15.0


class Meeting:
    """One agent's part."""

    def __init__(self, place: int, host: str, token: str) -> None:
        """Open a port for the others.

        Args:
            place: of this agent.
            host: at which others reach it.
            token: of the job.

        Raises:
            ClusterError: no port can be opened there.
        """
        self._listener = Listener(host)
        self._connections = TcpConnections(place, token)
        self._transport: Transport | None = None

    @property
    def address(self) -> Address:
        """At which others reach this agent."""
        return self._listener.address

    def connect(self, addresses: Mapping[int, Address]) -> None:
        """Connect to all others; they do the same.

        Raises:
            TransportError: one cannot be reached, or did not come.
        """
        self._connections.meet(self._listener, addresses, MEETING_S, threading.Event())
        self._transport = self._connections.begin(1, sorted(addresses))

    def probe(self, peer: int, *, measures: bool) -> ProbedPair | None:
        """Measure the way to the agent with another rank among the addresses, or answer one that measures.

        Raises:
            TransportError: the way broke.
        """
        if self._transport is None:
            raise TransportError("this agent has not met the others")
        role: Role = "measure" if measures else "echo"
        return probe_pair(self._transport, peer, role, base_tag=tag_of(Use.PROBE, 0), patience_s=None)

    def close(self) -> None:
        """Let go of port and connections."""
        self._connections.close()
        self._listener.close()
