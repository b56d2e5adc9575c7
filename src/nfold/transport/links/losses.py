"""Remembers which peers are lost, and tells it once each to whoever asked."""

import threading

from nfold.errors import PeerLost
from nfold.transport.protocol import OnFailure


class Losses:
    """The lost peers of one rank."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._lost: dict[int, PeerLost] = {}
        self._callback: OnFailure | None = None
        self._listeners: list[OnFailure] = []
        self._silent = False

    def tell(self, callback: OnFailure) -> None:
        """Set who is told, and tell at once what is known."""
        with self._lock:
            self._callback = callback
            known = list(self._lost.values())
        for error in known:
            callback(error)

    def tell_too(self, listener: OnFailure) -> None:
        """Tell one more, whoever else is set; and tell it at once what is known."""
        with self._lock:
            self._listeners.append(listener)
            known = list(self._lost.values())
        for error in known:
            listener(error)

    def report(self, peer: int, why: str) -> None:
        """Take note of a lost peer and tell whoever asked, as a PeerLost that says why; only its first loss counts."""
        with self._lock:
            if self._silent or peer in self._lost:
                return
            error = self._lost[peer] = PeerLost(f"rank {self._rank} lost rank {peer}: {why}", peer)
            told = [*self._listeners, *([self._callback] if self._callback else [])]
        for each in told:
            each(error)

    def silence(self) -> None:
        """Report nothing more: this rank itself is leaving."""
        with self._lock:
            self._silent = True
