"""What connections over links have in common, whatever carries the links: how they end."""

import time

from nfold.transport.generations.connections import Connections
from nfold.transport.links.framing import Kind
from nfold.transport.links.link import Link

LINGER_S = 1.0
"""How long `close` waits for all peers together to take what is queued and to answer."""


class LinkConnections(Connections[Link]):
    """A link to each peer.

    `done` may be called inside `send` and `receive`; call neither while holding a lock that `done` or the failure
    callback takes.
    """

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

    def _end(self, last_word: Kind) -> None:
        self._silence()
        links, deadline_s = list(self._ways.values()), time.monotonic() + LINGER_S
        for link in links:
            link.begin_close(last_word)
        for link in links:
            link.finish_close(deadline_s)
