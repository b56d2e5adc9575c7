"""Moves bytes between members through MPI, in which all of them are from the first to the last."""

from collections.abc import Mapping
from functools import partial

from nfold.errors import TransportError
from nfold.transport.implementations.over_links import LinkConnections
from nfold.transport.links.inbox import MAX_EARLY_BYTES, Inbox
from nfold.transport.links.link import Link
from nfold.transport.links.mpi_carrier import PIECE_BYTES, MpiCarrier
from nfold.transport.links.mpi_loop import MpiLoop, Peer


class MpiConnections(LinkConnections):
    """A way through MPI to each peer; the loop, which is the process's, serves all."""

    def __init__(
        self, member: int, loop: MpiLoop, *, max_early_bytes: int = MAX_EARLY_BYTES, piece_bytes: int = PIECE_BYTES
    ) -> None:
        """Args:
        member: this process.
        loop: that speaks MPI; its owner leaves MPI with it after these connections are closed.
        max_early_bytes: the longest message that is kept before its receive is posted.
        piece_bytes: the longest message given to MPI at once.
        """
        super().__init__(member)
        self._loop, self._max_early_bytes, self._piece_bytes = loop, max_early_bytes, piece_bytes

    def meet(self, peers: Mapping[int, Peer]) -> None:
        """Let ways lead to those members that none leads to; they do the same, sooner or later.

        Args:
            peers: by member; this process may be among them.

        Raises:
            TransportError: one was lost before. MPI does not say which of its messages are still to come.
        """
        if gone := self.lost.intersection(peers):
            raise TransportError(f"member {min(gone)} was lost, and MPI lets nobody come back. Start the run again.")
        for member, peer in peers.items():
            if member != self.member and member not in self.peers:
                carry = partial(self._carrier_to, peer)
                self._add(member, Link(member, carry, Inbox(self._max_early_bytes), self._lose))

    def _carrier_to(self, peer: Peer, link: Link) -> MpiCarrier:
        return MpiCarrier(self._loop, peer, link, self._piece_bytes)
