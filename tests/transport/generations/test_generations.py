"""Generations over connections that stay: other ranks, other members, and nothing from before."""

import os
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nfold.errors import InternalError, PeerLost, TransportError
from nfold.hosts.managers.mpi.mpi_start import started_together
from nfold.transport.implementations.in_memory import MemoryNetwork
from nfold.transport.links.inbox import Inbox
from nfold.transport.tags import MOST_GENERATIONS, Use, generation_of, in_generation, tag_of, without_generation

Connect = Callable[[int], Any]


def test_members_have_other_ranks_in_each_generation(connect: Connect) -> None:
    world, order = connect(4), random.Random(3)
    for number in range(1, 21):
        members = order.sample(range(4), order.randint(1, 4))
        world.begin(number, members)
        ranks = range(len(members))
        receipts = [(i, world.receive(i, j, 7, 4)) for i in ranks for j in ranks if i != j]
        for i, member in enumerate(members):
            for j in ranks:
                if i != j:
                    world.send(i, j, 7, number.to_bytes(3, "big") + bytes([member]))
        assert all(each.wait() == number.to_bytes(3, "big") + bytes([members[i]]) for i, each in receipts)
        counts = {(transport.sent_bytes, transport.received_bytes) for transport in world.transports}
        assert counts == {(4 * (len(members) - 1),) * 2}, "each generation counts its own bytes"
        assert all(seen.empty() for seen in world.failures)


def test_what_comes_early_is_kept_and_what_comes_late_is_thrown_away(connect: Connect) -> None:
    world = connect(2)
    waiting = world.receive(1, 0, 1, 3)
    first = world.members[0].begin(1, (0, 1))
    first.send(1, 2, memoryview(b"early"), lambda: None)
    world.send(1, 0, 1, b"late")
    second = world.members[1].begin(1, (0, 1))
    world.transports = [first, second]
    world.settle(1, 0)
    assert world.receive(0, 1, 2, 5).wait() == b"early"
    assert not waiting.done.is_set()
    assert (first.received_bytes, world.failures[0].empty()) == (0, True)


def test_a_message_that_is_under_way_disturbs_nobody(connect: Connect) -> None:
    """Its receive is gone, and its tag means something else now."""
    world, large = connect(2), bytearray(4 << 20)
    old = world.receive(0, 1, 5, len(large))
    world.send(0, 1, 5, large)
    world.begin(1, (0, 1))
    new = world.receive(0, 1, 5, 2)
    world.send(0, 1, 5, b"ok")
    assert new.wait() == b"ok"
    assert not old.done.is_set() or bytes(old.data) == large, "it was there before, whole"
    assert all(seen.empty() for seen in world.failures)


@pytest.mark.skipif(started_together(os.environ), reason="through MPI no generation ends amid a message")
def test_the_rest_of_a_message_arrives_nowhere_once_its_generation_is_over(connect: Connect) -> None:
    """Its memory may be used again."""
    world, large = connect(2), b"\1" * (16 << 20)
    old = world.receive(0, 1, 5, len(large))
    world.send(0, 1, 5, large)
    while not old.data[0]:
        world.settle(1, 0)
    world.begin(1, (0, 1))
    found = bytes(old.data)
    new = world.receive(0, 1, 5, 2)
    world.send(0, 1, 5, b"ok")
    assert new.wait() == b"ok"
    is_unchanged = old.data == found
    assert is_unchanged


def test_a_generation_without_the_lost_member_goes_on(connect: Connect) -> None:
    world = connect(3)
    world.members[1].abort()
    assert isinstance(world.failure(0), PeerLost)
    assert isinstance(world.failure(2), PeerLost)
    world.begin(1, (2, 0))
    receipt = world.receive(0, 1, 1, 2)
    world.send(0, 1, 1, b"on")
    assert receipt.wait() == b"on"
    for member in (0, 2):
        world.members[member].leave(1)
        assert world.members[member].peers == {2 - member}
    assert all(seen.empty() for seen in world.failures)


def test_a_generation_with_a_lost_member_hears_of_it_by_its_rank(connect: Connect) -> None:
    world = connect(3)
    world.members[1].abort()
    world.failure(0)
    told: list[Any] = []
    world.members[0].begin(1, (2, 1, 0)).on_failure(told.append)
    assert [(error.peer, str(error).partition(":")[0]) for error in told] == [(1, "rank 2 lost rank 1")]
    world.members[0].begin(2, (2, 0)).on_failure(told.append)
    assert len(told) == 1


def test_members_talk_beside_a_generation_that_goes_on(connect: Connect) -> None:
    world = connect(3)
    aside = {member: world.members[member].beside(1, (2, 0)) for member in (2, 0)}
    into, there, back = bytearray(3), threading.Event(), world.receive(2, 0, 7, 4)
    aside[0].receive(0, 7, memoryview(into), there.set)
    aside[2].send(1, 7, memoryview(b"hey"), lambda: None)
    world.send(2, 0, 7, b"step")
    assert there.wait(10)
    assert (bytes(into), back.wait()) == (b"hey", b"step"), "the same tag means two things"
    assert world.transports[0].received_bytes == 4, "steps count their own bytes"
    world.begin(2, (0, 1, 2))
    assert all(seen.empty() for seen in world.failures)


def test_what_waits_beside_a_generation_hears_of_losses_and_of_its_end(connect: Connect) -> None:
    world = connect(3)
    told: list[Any] = []
    world.members[0].beside(1, (2, 0)).on_failure(told.append)
    world.members[0].end_beside()
    assert [error.peer for error in told] == [0]
    world.members[2].abort()
    world.failure(0)
    world.members[0].beside(1, (2, 0)).on_failure(told.append)
    assert "rank 1 lost rank 0" in str(told[1])
    world.members[0].end_beside()
    assert len(told) == 2, "only the first loss counts"


def test_what_is_beside_a_generation_ends_nothing_later(connect: Connect) -> None:
    world, told = connect(3), list[Any]()
    before, now = (world.members[0].beside(number, (2, 0)) for number in (1, 2))
    now.on_failure(told.append)
    world.members[0].end_beside(before)
    with pytest.raises(TransportError, match="2 has begun beside"):
        world.members[0].beside(1, (2, 0))
    assert not told
    world.members[0].end_beside(now)
    assert [error.peer for error in told] == [0]


def test_a_transport_of_an_earlier_generation_does_nothing(connect: Connect) -> None:
    world = connect(2)
    before = world.transports[0]
    world.begin(1, (0, 1))
    before.send(1, 1, memoryview(b"x"), lambda: None)
    before.receive(1, 1, memoryview(bytearray(1)), lambda: None)
    world.settle(0, 1)
    assert world.transports[1].received_bytes == 0
    world.close()
    assert all(seen.empty() for seen in world.failures), "nobody waits for what was asked of it"


def test_generations_come_in_order_and_among_the_connected(connect: Connect) -> None:
    world = connect(2)
    for number in (0, -1, MOST_GENERATIONS):
        with pytest.raises(InternalError, match=f"generation {number} cannot begin"):
            world.members[0].begin(number, (0, 1))
    with pytest.raises(InternalError, match="no connection to member 7"):
        world.members[0].begin(1, (0, 7))
    with pytest.raises(InternalError, match="member 0 has no rank"):
        world.members[0].begin(1, (1,))


def test_a_thread_may_join_a_network() -> None:
    network = MemoryNetwork(1)
    joiner = network.join(1)
    ends = [network.connections(0).begin(0, (1, 0)), joiner.begin(0, (1, 0))]
    came, into = threading.Event(), bytearray(5)
    ends[1].receive(1, 1, memoryview(into), came.set)
    ends[0].send(0, 1, memoryview(b"hello"), lambda: None)
    assert came.wait(10)
    assert into == b"hello"
    network.close()


def test_a_message_of_an_earlier_generation_is_not_kept() -> None:
    inbox, heard = Inbox(), []
    inbox.post(in_generation(0, 1), memoryview(bytearray(1)), lambda: heard.append(0))
    begun = inbox.begin(in_generation(0, 1), 1)
    kept = inbox.begin(in_generation(0, 2), 1)
    inbox.forget_before(1)
    inbox.finish(begun)
    inbox.finish(kept)
    inbox.finish(inbox.begin(in_generation(0, 3), 1))
    assert (heard, inbox.depart()) == ([], 0)
    assert not inbox._early


def test_tags_name_generation_use_and_number() -> None:
    tag = tag_of(Use.PIECE, 2**40 - 1)
    assert generation_of(in_generation(2**20 - 1, tag)) == 2**20 - 1
    assert without_generation(in_generation(2**20 - 1, tag)) == tag
    assert len({tag_of(use, 5) for use in Use}) == len(Use)
    for number in (-1, 2**40):
        with pytest.raises(InternalError, match="40 bits"):
            tag_of(Use.STEP, number)
    with pytest.raises(InternalError, match="44 bits"):
        in_generation(0, 2**44)
