"""Brings every rank's bytes to rank 0 over the transport."""

import threading

from nfold.errors import TransportError
from nfold.transport.base import Transport

TAG_BASE = 1 << 30
"""Tags of gathers lie above those of steps."""
WAIT_S = 600.0


def gather(transport: Transport, world_size: int, number: int, part: bytes) -> list[bytes] | None:
    """Collect one part of each rank on rank 0.

    Args:
        transport: between the ranks.
        world_size: ranks that take part.
        number: counts the gathers of a job, so that their tags differ.
        part: this rank's bytes.

    Returns:
        All parts by rank on rank 0, None elsewhere.

    Raises:
        TransportError: a peer is lost, or nothing moved for WAIT_S.
    """
    tag = TAG_BASE + 2 * number
    if transport.rank != 0:
        exchange = _Exchange(transport)
        exchange.send(0, tag, len(part).to_bytes(8, "little"))
        exchange.send(0, tag + 1, part)
        exchange.wait()
        return None
    sizes = [bytearray(8) for _ in range(world_size)]
    exchange = _Exchange(transport)
    for rank in range(1, world_size):
        exchange.receive(rank, tag, sizes[rank])
    exchange.wait()
    arriving = [bytearray(int.from_bytes(size, "little")) for size in sizes]
    exchange = _Exchange(transport)
    for rank in range(1, world_size):
        exchange.receive(rank, tag + 1, arriving[rank])
    exchange.wait()
    parts = [part]
    for rank in range(1, world_size):
        # Copied and let go one by one: all copies beside all originals would be the whole model once more.
        parts.append(bytes(arriving[rank]))
        arriving[rank] = bytearray()
    return parts


class _Exchange:
    """A few messages that are waited for together."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._changed = threading.Condition()
        self._left = 0
        self._failure: TransportError | None = None
        transport.on_failure(self._fail)

    def send(self, peer: int, tag: int, data: bytes) -> None:
        self._expect()
        self._transport.send(peer, tag, memoryview(data), self._one_done)

    def receive(self, peer: int, tag: int, into: bytearray) -> None:
        self._expect()
        self._transport.receive(peer, tag, memoryview(into), self._one_done)

    def _expect(self) -> None:
        with self._changed:
            self._left += 1

    def wait(self) -> None:
        with self._changed:
            finished = self._changed.wait_for(lambda: self._failure is not None or self._left == 0, WAIT_S)
        if self._failure is not None:
            raise self._failure
        if not finished:
            raise TransportError(f"{self._left} messages of a gather did not arrive within {WAIT_S:.0f} s")

    def _one_done(self) -> None:
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def _fail(self, error: TransportError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
