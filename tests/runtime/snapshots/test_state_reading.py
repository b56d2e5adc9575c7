"""State that a rank is given by another one, on threads of one process."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from nfold.runtime.snapshots.state_giving import REQUEST
from nfold.runtime.snapshots.state_reading import Source, StateReading

ELEMENTS = 1 << 20
ITEM_BYTES = 4


class Holder:
    """A transport between this rank, 0, and one that answers at once."""

    rank, world_size = 0, 2

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self._waiting: dict[int, tuple[memoryview, Any]] = {}

    def on_failure_too(self, callback: Any) -> None:
        pass

    def receive(self, peer: int, tag: int, into: memoryview, done: Any) -> None:
        self._waiting[tag] = (into, done)

    def send(self, peer: int, tag: int, data: memoryview, done: Any) -> None:
        _, _, first, last = REQUEST.unpack(data)
        into, arrived = self._waiting.pop(tag + 1)
        into[:] = self.values[first:last].view(np.uint8).data
        arrived()
        done()


@pytest.fixture
def reading() -> StateReading:
    values = np.arange(ELEMENTS, dtype=np.float32)
    half = ELEMENTS // 2 * ITEM_BYTES
    rows = [[0, half, 1, 1, 0, 0, ITEM_BYTES], [half, 2 * half, 1, 1, 0, ELEMENTS // 2, ITEM_BYTES]]
    return StateReading(Holder(values), None, [Source.from_row(row) for row in rows])


def test_what_two_pieces_hold_comes_in_order(reading):
    found = np.frombuffer(reading.read(4, ELEMENTS * ITEM_BYTES), dtype=np.float32)
    assert np.array_equal(found, np.arange(1, ELEMENTS))
    assert reading.received_bytes == (ELEMENTS - 1) * ITEM_BYTES


def test_what_comes_is_in_memory_once(reading):
    tracemalloc.start()
    try:
        reading.read(0, ELEMENTS * ITEM_BYTES)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1.2 * ELEMENTS * ITEM_BYTES
