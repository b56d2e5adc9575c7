"""What a rank gives to a shadow while others are lost, and what it holds for one that is given up."""

import gc
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from nfold.runtime.checkpoint.checkpoint_format import StatePart
from nfold.runtime.snapshots import lending
from nfold.runtime.snapshots.lending import NO_MORE, SHADOW, STEP, Lending, sums_tag
from nfold.runtime.snapshots.state_memory import HeldState
from nfold.transport.generations.generation_transport import GenerationTransport
from nfold.transport.implementations.in_memory import MemoryNetwork

REPLICA = SimpleNamespace(rank=1, sums_of=lambda *_: (), tell_sums=lambda *_: None, tell_no_sums=lambda: None)


@pytest.fixture
def transports() -> Iterator[list[GenerationTransport]]:
    """Of a shadow and of two that lend."""
    network = MemoryNetwork(3)
    members = [network.connections(each) for each in range(3)]
    yield [each.begin(1, range(3)) for each in members]
    for each in members:
        each.abort()


def lend(
    transport: GenerationTransport, monkeypatch: pytest.MonkeyPatch
) -> tuple[Lending, "weakref.ref[torch.Tensor]"]:
    values = torch.zeros(3)
    held = HeldState((0, 1), {(1, 0): StatePart("weight", (3,), 0, values)})
    monkeypatch.setattr(lending, "_own_part", lambda *_: (held, {}))
    return Lending(transport, REPLICA, (), (0, 1), 1, lambda _: None), weakref.ref(values)


def test_a_shadow_is_told_the_end_where_only_another_lender_is_lost(transports, monkeypatch):
    given, _ = lend(transports[1], monkeypatch)
    told, done = bytearray(STEP.size), threading.Event()
    transports[SHADOW].receive(1, sums_tag(0, 0, 0), memoryview(told), done.set)
    transports[1].lose(2, "Connection reset by peer")
    given.finish()
    assert done.wait(5)
    assert STEP.unpack(told) == (NO_MORE,)


def test_the_copy_for_a_shadow_that_is_lost_is_let_go(transports, monkeypatch):
    given, copy = lend(transports[1], monkeypatch)
    monkeypatch.undo()
    transports[1].lose(SHADOW, "it has gone")
    given.finish()
    gc.collect()
    assert copy() is None
