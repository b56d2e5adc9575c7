"""What every transport promises, over all of them."""

import random
import threading
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nfold.errors import InternalError, PeerLost, TransportError

Connect = Callable[[int], Any]
BIG = 8 << 20


def noise(length: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(length)


@pytest.mark.parametrize("length", [0, 1, 23, 24, 4096, 65_535, 65_536, 65_537, 1_000_003, BIG])
def test_a_message_arrives_whole(connect: Connect, length: int) -> None:
    world = connect(2)
    receipt = world.receive(0, 1, 7, length)
    done = world.send(0, 1, 7, noise(length))
    assert receipt.wait() == noise(length)
    assert done.wait(10)


def test_what_may_wait_on_the_way_can_be_limited_at_any_time(connect: Connect) -> None:
    world = connect(2)
    receipt = world.receive(0, 1, 7, BIG)
    world.send(0, 1, 7, noise(BIG))
    world.transports[0].limit_unsent(1, 10_000)
    assert receipt.wait() == noise(BIG)
    world.members[1].abort()
    world.send(0, 1, 8, b"lost")
    assert isinstance(world.failure(0), PeerLost)
    world.transports[0].limit_unsent(1, 1 << 30)
    world.members[0].close()
    world.transports[0].limit_unsent(1, None)


@pytest.mark.parametrize("length", [0, 5, 300_000])
def test_a_message_may_come_before_its_receive(connect: Connect, length: int) -> None:
    world = connect(2)
    world.send(1, 0, 3, noise(length))
    world.settle(1, 0)
    assert world.receive(1, 0, 3, length).wait() == noise(length)


def test_tags_may_be_received_in_any_order(connect: Connect) -> None:
    world = connect(2)
    tags = [0, 5, 2**31, 2**32 + 5, 2**44 - 1]
    receipts = [world.receive(0, 1, tag, 1000) for tag in tags[:2]]
    for tag in reversed(tags):
        world.send(0, 1, tag, noise(1000, tag))
    receipts += [world.receive(0, 1, tag, 1000) for tag in tags[2:]]
    assert [receipt.wait() for receipt in receipts] == [noise(1000, tag) for tag in tags]


def test_four_ranks_talk_all_to_all_and_every_byte_is_counted(connect: Connect) -> None:
    world, ranks = connect(4), range(4)
    pairs = [(i, j) for i in ranks for j in ranks if i != j]
    receipts = {(i, j): world.receive(i, j, i, 1000 * (i + 1)) for i, j in pairs}
    for i, j in pairs:
        world.send(i, j, i, noise(1000 * (i + 1), i))
    for (i, _), receipt in receipts.items():
        assert receipt.wait() == noise(1000 * (i + 1), i)
    assert [transport.sent_bytes for transport in world.transports] == [3000, 6000, 9000, 12000]
    assert [transport.received_bytes for transport in world.transports] == [9000, 8000, 7000, 6000]


def test_both_directions_carry_large_messages_at_once(connect: Connect) -> None:
    world, large = connect(2), [noise(BIG, tag) for tag in range(3)]
    for tag, data in enumerate(large):
        world.send(0, 1, tag, data)
        world.send(1, 0, tag, data)
    receipts = [world.receive(1 - rank, rank, tag, BIG) for tag in range(3) for rank in range(2)]
    assert [receipt.wait() == large[index // 2] for index, receipt in enumerate(receipts)] == [True] * 6


def test_several_threads_send_at_once(connect: Connect) -> None:
    world = connect(2)
    receipts = [world.receive(0, 1, tag, 1 + 997 * tag) for tag in range(160)]
    start = threading.Barrier(4)

    def send(first: int) -> None:
        start.wait(10)
        for tag in range(first, 160, 4):
            world.send(0, 1, tag, noise(1 + 997 * tag, tag))

    threads = [threading.Thread(target=send, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert all(receipt.wait() == noise(1 + 997 * tag, tag) for tag, receipt in enumerate(receipts))


def test_a_done_may_send_and_receive(connect: Connect) -> None:
    world = connect(2)
    answer, ping = world.receive(1, 0, 2, 3), bytearray(3)
    world.transports[1].receive(0, 1, memoryview(ping), lambda: world.send(1, 0, 2, ping))
    world.send(0, 1, 1, b"abc")
    assert answer.wait() == b"abc"


def test_memory_of_other_types_is_taken_as_bytes(connect: Connect) -> None:
    world = connect(2)
    done, numbers, into = threading.Event(), array("d", [1.5, -2.0]), array("d", [0.0, 0.0])
    world.transports[1].receive(0, 1, memoryview(into), done.set)
    world.transports[0].send(1, 1, memoryview(numbers), lambda: None)
    assert done.wait(10)
    assert into == numbers


def test_a_rank_that_gives_up_is_lost_to_all_others_once(connect: Connect) -> None:
    world = connect(3)
    world.receive(1, 0, 1, 10)
    world.members[1].abort()
    for rank in (0, 2):
        error = world.failure(rank)
        assert isinstance(error, PeerLost)
        assert error.peer == 1
    world.send(0, 1, 5, b"too late")
    world.receive(1, 0, 6, 1)
    world.send(0, 2, 9, b"fine")
    assert world.receive(0, 2, 9, 4).wait() == b"fine"
    assert world.failures[0].empty()


def test_who_asks_late_is_told_of_a_loss_too(connect: Connect) -> None:
    world = connect(2)
    world.members[1].abort()
    world.failure(0)
    told: list[TransportError] = []
    world.transports[0].on_failure(told.append)
    assert [getattr(error, "peer", None) for error in told] == [1]


def test_a_goodbye_is_no_failure(connect: Connect) -> None:
    world = connect(3)
    receipt = world.receive(1, 0, 1, 4)
    world.send(1, 0, 1, b"last")
    world.send(1, 0, 2, b"kept")
    world.members[1].close()
    assert receipt.wait() == b"last"
    assert world.receive(1, 0, 2, 4).wait() == b"kept"
    world.close()
    assert all(seen.empty() for seen in world.failures)


def test_close_flushes_what_was_sent(connect: Connect) -> None:
    world = connect(2)
    receipts = [world.receive(0, 1, tag, 1 << 20) for tag in range(4)]
    for tag in range(4):
        world.send(0, 1, tag, noise(1 << 20, tag))
    world.members[0].close()
    assert all(receipt.wait() == noise(1 << 20, tag) for tag, receipt in enumerate(receipts))


def test_a_goodbye_while_a_receive_waits_is_a_failure(connect: Connect) -> None:
    world = connect(2)
    world.receive(1, 0, 1, 4)
    world.members[1].close()
    error = world.failure(0)
    assert error.peer == 1
    assert "1 receives waited" in str(error)


@pytest.mark.parametrize("use", ["send", "receive"])
def test_using_a_peer_after_its_goodbye_is_a_failure(connect: Connect, use: str) -> None:
    world = connect(2)
    world.members[1].close()
    if use == "send":
        world.send(0, 1, 1, b"hello")
        world.receive(1, 0, 2, 1)  # over TCP the send alone may go out before the goodbye is read
    else:
        world.receive(1, 0, 1, 4)
    assert world.failure(0).peer == 1


@pytest.mark.parametrize("early", [True, False])
def test_another_length_fails_the_peer(connect: Connect, early: bool) -> None:
    world = connect(2)
    if early:
        world.send(1, 0, 1, b"12345")
        world.settle(1, 0)
    receipt = world.receive(1, 0, 1, 4)
    if not early:
        world.send(1, 0, 1, b"12345")
    error = world.failure(0)
    assert error.peer == 1
    assert "5 bytes" in str(error)
    assert "4 bytes" in str(error)
    assert not receipt.done.is_set()


def test_misuse_is_said_at_once(connect: Connect) -> None:
    world = connect(2)
    with pytest.raises(InternalError, match="no connection to rank 2"):
        world.send(0, 2, 1, b"")
    with pytest.raises(InternalError, match="no connection to rank 0"):
        world.receive(0, 0, 1, 1)
    world.close()
    with pytest.raises(TransportError, match="closed"):
        world.send(0, 1, 1, b"")
    with pytest.raises(TransportError, match="closed"):
        world.receive(1, 0, 1, 1)


messages = st.lists(
    st.tuples(st.integers(0, 2**44 - 2), st.binary(max_size=300)), unique_by=lambda m: m[0], max_size=20
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=messages, early=st.integers(0, 20))
def test_any_messages_arrive_intact(connect: Connect, messages: list[tuple[int, bytes]], early: int) -> None:
    world = connect(2)
    receipts = [world.receive(0, 1, tag, len(data)) for tag, data in messages[early:]]
    for tag, data in messages:
        world.send(0, 1, tag, data)
    receipts = [world.receive(0, 1, tag, len(data)) for tag, data in messages[:early]] + receipts
    assert [receipt.wait() for receipt in receipts] == [data for _, data in messages]
    world.close()
