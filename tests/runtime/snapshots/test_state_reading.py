"""State that a rank is given by another one, on threads of one process."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from nfold.runtime.checkpoint.checkpoint_format import StatePart
from nfold.runtime.checkpoint.state_file import StateEntry, pack_header
from nfold.runtime.snapshots.state_giving import NO_MORE, REQUEST
from nfold.runtime.snapshots.state_memory import HeldState
from nfold.runtime.snapshots.state_reading import Source, StateReading, own_sources

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


HEADER = pack_header([StateEntry(name="a", dtype="F64", shape=(2,)), StateEntry(name="b", dtype="F32", shape=(2, 2))])


def part(name: str, values: torch.Tensor, shape: tuple[int, ...], start: int = 0) -> StatePart:
    return StatePart(name, shape, start, values)


A, B = part("a", torch.tensor([1.0, 2.0], dtype=torch.float64), (2,)), part("b", torch.ones(2, 2), (2, 2))


@pytest.mark.parametrize(
    ("parts", "is_whole"),
    [
        ((A, B), True),
        ((B, A, part("none", torch.ones(0), (0,))), False),  # nobody knows it
        ((A,), False),
        ((A, part("b", torch.ones(2), (2, 2), 2)), False),
        ((A, part("b", torch.ones(2, 2, dtype=torch.float64), (2, 2))), False),
        ((A, B, B), False),
    ],
)
def test_who_has_all_of_a_file_reads_it_there_and_tells_others_that_nobody_asks(parts, is_whole):
    state = HeldState((0, 3), {(2, index): each for index, each in enumerate(parts)})
    own = own_sources(state, HEADER, 0)
    assert bool(own) == is_whole
    if is_whole:
        told = Holder(np.zeros(0))
        told.send = lambda peer, tag, data, done: (asked.append((peer, bytes(data))), done())
        asked: list[tuple[int, bytes]] = []
        begin = len(HEADER)
        reading = StateReading(told, state, [Source(begin, begin + 32, 1, (1, 0), 0, 4)], own)
        assert np.frombuffer(reading.read(begin, begin + 16), dtype=np.float64).tolist() == [1.0, 2.0]
        reading.end()
        assert (reading.received_bytes, asked) == (0, [(1, NO_MORE)])
