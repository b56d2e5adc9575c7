"""Counts the payload that goes to a peer and comes from it, for each generation by itself.

Samples and state that move are left out: they travel beside steps, whose bytes are predicted, and whoever moves them
counts them.
"""

from collections import Counter

from nfold.transport.tags import generation_of, travels_beside


class ByteCounts:
    """The part of a `Way` that counts. Each direction is counted by one thread at a time."""

    def __init__(self) -> None:
        self._sent_bytes: Counter[int] = Counter()
        self._received_bytes: Counter[int] = Counter()

    def sent_bytes(self, generation: int) -> int:
        """Return the payload bytes of a generation that were handed over so far."""
        return self._sent_bytes[generation]

    def received_bytes(self, generation: int) -> int:
        """Return the payload bytes of a generation that were received so far."""
        return self._received_bytes[generation]

    def _count_sent(self, tag: int, num_bytes: int) -> None:
        if not travels_beside(tag):
            self._sent_bytes[generation_of(tag)] += num_bytes

    def _count_received(self, tag: int, num_bytes: int) -> None:
        if not travels_beside(tag):
            self._received_bytes[generation_of(tag)] += num_bytes
