"""What a buddy is given of snapshots."""

import struct
import threading
from typing import Any

import torch

from nfold.runtime.checkpoint.checkpoint_format import StatePart
from nfold.runtime.snapshots import shipments
from nfold.runtime.snapshots.shipments import Receiver, Sender, Shipment
from nfold.runtime.snapshots.state_memory import HeldState, StateMemory

MANY = 5000
"""Parts of one snapshot: more than calls may lie within each other."""


class Arrived:
    """A transport to which all messages have come before anybody asks for them."""

    number = 0

    def __init__(self, messages: dict[int, bytes], *, is_fast: bool = False) -> None:
        self.messages, self.is_fast = messages, is_fast
        self.sent: list[int] = []

    def receive(self, peer: int, tag: int, into: memoryview, done: Any) -> None:
        if tag in self.messages:
            into[:] = self.messages.pop(tag)
            done()

    def send(self, peer: int, tag: int, data: memoryview, done: Any) -> None:
        self.sent.append(tag)
        if self.is_fast:
            done()

    def on_failure_too(self, _: Any) -> None:
        """Nobody is lost."""


def test_the_thread_that_gives_a_buddy_snapshots_ends_with_its_generation():
    """Though the buddy never says that it has one."""
    shipment, failures = Shipment.from_row([1, 0, 1, 0, [[0, "w", "F32", [2], 0, 2]]]), []
    state = HeldState((0, 3), {(0, 0): StatePart("w", (2,), 0, torch.zeros(2))})
    before = set(threading.enumerate())
    sender = Sender(Arrived({}), shipment, None, failures.append)
    sender.send(state, lambda: failures.append("it has"))
    closing = threading.Thread(target=sender.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    assert set(threading.enumerate()) <= before | {closing}
    assert not failures


def test_a_sender_in_a_hurry_has_no_pace_until_more_is_sent():
    """A rate that was measured while a step took long would throttle training for good."""
    shipment, had = Shipment.from_row([1, 0, 1, 0, [[0, "w", "F32", [2], 0, 2]]]), threading.Event()
    first, then = (HeldState((0, step), {(0, 0): StatePart("w", (2,), 0, torch.zeros(2))}) for step in (3, 6))
    transport = Arrived({shipment.tag(count): b"\1" for count in (0, 2)}, is_fast=True)
    sender = Sender(transport, shipment, 1e-6, None)
    sender.send(first, had.set)  # nothing paces the first part
    assert had.wait(10)
    had.clear()
    sender.send(then, had.set)
    assert len(transport.sent) <= 3, "the second one must wait for the time of the first one's bytes"
    sender.hurry()
    assert had.wait(10)
    sender.close()
    assert len(transport.sent) == 4


def test_a_snapshot_of_many_parts_may_come_before_its_buddy_looks_for_them(monkeypatch):
    monkeypatch.setattr(shipments, "PART_BYTES", 8)
    values, memory = torch.arange(2 * MANY, dtype=torch.float32), StateMemory()
    shipment = Shipment.from_row([1, 0, 1, 0, [[0, "w", "F32", [2 * MANY], 0, 2 * MANY]]])
    data = values.numpy().tobytes()
    parts = [struct.pack("<q", 3), *(data[start : start + 8] for start in range(0, len(data), 8))]
    transport = Arrived({shipment.tag(count): part for count, part in enumerate(parts)})
    Receiver(transport, shipment, memory)
    state = memory.get((0, 3))
    assert state is not None
    assert torch.equal(state.pieces[0, 0].values, values)
    assert transport.sent == [shipment.tag(0)], "it is acknowledged"
