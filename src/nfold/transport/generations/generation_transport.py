"""The ranks of one generation talk over the connections that its members have anyway."""

from collections.abc import Mapping

from nfold.errors import InternalError
from nfold.transport.links.framing import flat
from nfold.transport.links.losses import Losses
from nfold.transport.protocol import Done, OnFailure, Way
from nfold.transport.tags import in_generation


class GenerationTransport:
    """A `Transport` over one way per rank. `Connections.begin` makes it."""

    def __init__(self, number: int, rank: int, ways: Mapping[int, Way]) -> None:
        """Args:
        number: of the generation.
        rank: our own.
        ways: to every other rank, by rank.
        """
        self.number, self.rank, self.world_size = number, rank, len(ways) + 1
        self._ways = ways
        self._losses = Losses(rank)
        self._is_over = False

    @property
    def sent_bytes(self) -> int:
        """Payload bytes handed over so far, headers left out."""
        return sum(way.sent_bytes(self.number) for way in self._ways.values())

    @property
    def received_bytes(self) -> int:
        """Payload bytes received so far, headers left out."""
        return sum(way.received_bytes(self.number) for way in self._ways.values())

    def send(self, peer: int, tag: int, data: memoryview, done: Done) -> None:
        """Send bytes, as `Transport.send` says.

        Raises:
            InternalError: no way leads to that rank.
            TransportError: this process has closed its connections.
        """
        way = self._way(peer)
        if not self._is_over:
            way.send(in_generation(self.number, tag), flat(data), done)

    def receive(self, peer: int, tag: int, into: memoryview, done: Done) -> None:
        """Receive exactly as many bytes as `into` holds, as `Transport.receive` says.

        Raises:
            InternalError: no way leads to that rank.
            TransportError: this process has closed its connections.
        """
        way = self._way(peer)
        if not self._is_over:
            way.receive(in_generation(self.number, tag), flat(into), done)

    def on_failure(self, callback: OnFailure) -> None:
        """Set who is told that a peer is lost; told at once if one already is."""
        self._losses.tell(callback)

    def on_failure_too(self, listener: OnFailure) -> None:
        """Tell somebody of lost peers beside whom `on_failure` sets: what travels beside the steps, as samples do."""
        self._losses.tell_too(listener)

    def limit_unsent(self, peer: int, num_bytes: int | None) -> None:
        """Limit what may wait in the kernel on the way to a peer, as `Transport.limit_unsent` says.

        Raises:
            InternalError: no way leads to that rank.
        """
        self._way(peer).limit_unsent(num_bytes)

    # For the connections below

    def lose(self, peer: int, why: str) -> None:
        """Tell whoever asked that a rank is lost, and why; only its first loss counts."""
        self._losses.report(peer, why)

    def end(self) -> None:
        """Do nothing more, and report nothing: the generation is over, or this process leaves."""
        self._is_over = True
        self._losses.silence()

    def silence(self) -> None:
        """Report nothing more: this process leaves."""
        self._losses.silence()

    def _way(self, peer: int) -> Way:
        if peer not in self._ways:
            raise InternalError(f"rank {self.rank} of {self.world_size} has no connection to rank {peer}")
        return self._ways[peer]
