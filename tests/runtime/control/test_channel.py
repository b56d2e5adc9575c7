"""Control connections: what is said arrives, and strangers do no harm."""

import itertools
import queue
import re
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nfold.errors import ClusterError
from nfold.runtime.control import channel as protocol
from nfold.runtime.control import control_server
from nfold.runtime.control.channel import ChannelClosed, QueueChannel, SocketChannel, connect, greet
from nfold.runtime.control.control_server import SocketControlServer, ThreadControlServer
from nfold.runtime.control.events import Left, Said
from nfold.runtime.rank.heartbeat import Heartbeat
from nfold.transport.connecting.token_proof import (
    CHALLENGE_BYTES,
    COORDINATOR,
    HELLO_BYTES,
    Hello,
    pack_challenge,
    pack_hello,
    unpack_challenge,
)

pytestmark = pytest.mark.timeout(30)
HEADER = struct.Struct("!4sIQ")
TOKEN = "the token of this job"


def hello(token=TOKEN, rank=0, role="report", length=HELLO_BYTES, then=b""):
    """What a newcomer answers to a challenge."""

    def answer(challenge):
        mine = Hello(rank, COORDINATOR, bytes(16))
        return pack_hello(mine, token, role, unpack_challenge(challenge))[:length] + then

    return answer


def words(data):
    """What somebody says who does not listen."""
    return lambda challenge: data


def hear_challenge(connection):
    return connection.recv(CHALLENGE_BYTES, socket.MSG_WAITALL)


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    return one, other


def socket_channels():
    one, other = tcp_pair()
    return SocketChannel(one), SocketChannel(other)


def test_a_thread_that_sends_more_than_is_taken_waits(monkeypatch):
    monkeypatch.setattr(protocol, "MOST_QUEUED_BYTES", 100)
    near, far = QueueChannel.pair()
    for _ in range(2):
        far.send({"is": "piece"}, bytes(50))
    far.send({"is": "small"})
    sending = threading.Thread(target=far.send, args=({"is": "piece"}, bytes(1)), daemon=True)
    sending.start()
    sending.join(0.1)
    assert sending.is_alive(), "there is no room"
    assert near.receive() == ({"is": "piece"}, bytes(50))
    sending.join(10)
    assert not sending.is_alive()
    assert [len(near.receive()[1]) for _ in range(3)] == [50, 0, 1]
    far.send({"is": "piece"}, bytes(1000))
    assert len(near.receive()[1]) == 1000, "a piece larger than all room goes alone"


def test_a_thread_that_waits_for_room_hears_that_nobody_will_take_anything(monkeypatch):
    monkeypatch.setattr(protocol, "MOST_QUEUED_BYTES", 100)
    near, far = QueueChannel.pair()
    far.send({"is": "piece"}, bytes(100))
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(far.send, {"is": "piece"}, bytes(100))
        near.close()
        with pytest.raises(ChannelClosed):
            sending.result(10)
    assert near.receive() == ({"is": "piece"}, bytes(100)), "what was sent before"


@pytest.fixture(params=[socket_channels, QueueChannel.pair], ids=["socket", "queue"])
def channels(request):
    """Two connected sides, of either kind."""
    near, far = request.param()
    yield near, far
    near.close()
    far.close()


# What is said


def test_messages_and_bytes_arrive_in_order_both_ways(channels):
    near, far = channels
    near.send({"do": "load", "nested": {"a": [1, 2.5, None, "ü"]}})
    near.send({"do": "build"}, b"\0\1" * 50_000)
    far.send({"is": "ready"}, memoryview(b"abc"))
    assert far.receive() == ({"do": "load", "nested": {"a": [1, 2.5, None, "ü"]}}, b"")
    assert far.receive() == ({"do": "build"}, b"\0\1" * 50_000)
    assert near.receive() == ({"is": "ready"}, b"abc")


def test_both_kinds_carry_what_json_carries(channels):
    near, far = channels
    near.send({"tuple": (1, 2), "keys": {3: 4}})
    assert far.receive()[0] == {"tuple": [1, 2], "keys": {"3": 4}}


def test_threads_may_send_at_once(channels):
    near, far = channels

    def speak(number):
        for _ in range(20):
            near.send({"number": number}, bytes([number]) * 2000)

    threads = [threading.Thread(target=speak, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    heard = [far.receive() for _ in range(80)]
    for thread in threads:
        thread.join()
    assert all(blob == bytes([message["number"]]) * 2000 for message, blob in heard)


@pytest.mark.parametrize("closer", [0, 1])
def test_closing_wakes_both_sides(channels, closer):
    found = []

    def listen(side):
        with pytest.raises(ChannelClosed):
            side.receive()
        found.append(side)

    threads = [threading.Thread(target=listen, args=(side,)) for side in channels]
    for thread in threads:
        thread.start()
    channels[closer].close()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    channels[closer].close()


def test_what_was_said_before_the_end_is_still_heard(channels):
    near, far = channels
    near.send({"is": "finished"}, b"model")
    near.close()
    assert far.receive() == ({"is": "finished"}, b"model")
    for _ in range(2):
        with pytest.raises(ChannelClosed, match="closed"):
            far.receive()


def test_nothing_can_be_sent_on_a_closed_channel(channels):
    near, _ = channels
    near.close()
    with pytest.raises(ChannelClosed):
        near.send({"is": "late"})


def test_a_rank_notices_that_the_coordinator_is_gone_when_it_sends():
    near, far = QueueChannel.pair()
    near.close()
    with pytest.raises(ChannelClosed):
        far.send({"is": "late"})


def test_a_channel_knows_when_it_last_heard_something_in_the_middle_of_a_message_too():
    one, other = tcp_pair()
    seconds = itertools.count(100.0)
    channel = SocketChannel(other, clock=lambda: next(seconds))
    assert channel.heard_s == 100.0
    one.sendall(HEADER.pack(b"nfC1", 2, 4) + b"{}" + b"half")
    assert channel.receive() == ({}, b"half")
    assert channel.heard_s == 103.0, "the header, the text, the bytes"
    one.sendall(HEADER.pack(b"nfC1", 2, 4))
    one.close()
    with pytest.raises(ChannelClosed):
        channel.receive()
    assert channel.heard_s == 104.0
    channel.close()


# What is not our protocol


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        HEADER.pack(b"nfC0", 2, 0) + b"{}",
        HEADER.pack(b"nfC1", (1 << 30) + 1, 0),
        HEADER.pack(b"nfC1", 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF),
        HEADER.pack(b"nfC1", 2, (1 << 64) - 1) + b"{}",
        HEADER.pack(b"nfC1", 2, (1 << 40) + 1) + b"{}",
        HEADER.pack(b"nfC1", 4, 0) + b"nope",
        HEADER.pack(b"nfC1", 2, 0) + b"\xff\xff",
        HEADER.pack(b"nfC1", 2, 0) + b"[]",
        HEADER.pack(b"nfC1", 10, 0) + b"{",
        HEADER.pack(b"nfC1", 2, 10) + b"{}half",
        b"nf",
        b"",
    ],
)
def test_anything_else_ends_the_conversation(data):
    one, other = tcp_pair()
    one.sendall(data)
    one.close()
    with pytest.raises(ChannelClosed):
        SocketChannel(other).receive()
    other.close()


def test_a_message_that_does_not_fit_in_memory_ends_the_conversation(monkeypatch):
    one, other = tcp_pair()
    one.sendall(HEADER.pack(b"nfC1", 2, 1 << 40) + b"{}")

    def bounded(size):
        if size > 1 << 30:
            raise MemoryError
        return bytearray(size)

    monkeypatch.setattr(protocol, "bytearray", bounded, raising=False)
    with pytest.raises(ChannelClosed, match=r"a control message of 1024.0 GiB does not fit in memory"):
        SocketChannel(other).receive()
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("answer", "rank"),
    [
        (hello(rank=3), 3),
        (hello("another token"), None),
        (hello(""), None),
        (hello(role="dial"), None),
        (hello(length=HELLO_BYTES - 1), None),
        (words(hello()(pack_challenge(b"of another time."))), None),
        (words(b"GET / HTTP/1.1\r\nHost: a.example.org.\r\n\r\n"), None),
        (words(b"\0" * HELLO_BYTES), None),
        (words(b""), None),
    ],
)
def test_only_a_newcomer_with_the_token_has_a_rank(answer, rank):
    one, other = tcp_pair()
    with ThreadPoolExecutor(1) as pool:
        greeted = pool.submit(greet, other, TOKEN, 5.0)
        one.sendall(answer(hear_challenge(one)))
        one.shutdown(socket.SHUT_WR)
        assert greeted.result(10) == rank
    one.close()
    other.close()


def test_a_coordinator_without_the_token_is_not_believed():
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def refuse():
            with listener.accept()[0] as connection:
                return greet(connection, "another token", 5.0)

        refused = pool.submit(refuse)
        with pytest.raises(ChannelClosed, match=r"rank 2 was not let in .* at 127.0.0.1:\d+: it hung up, prob.* token"):
            connect("127.0.0.1", listener.getsockname()[1], TOKEN, 2)
        assert refused.result(10) is None

        def pretend():
            connection, _ = listener.accept()
            connection.sendall(pack_challenge(bytes(16)))
            heard = connection.recv(HELLO_BYTES, socket.MSG_WAITALL)
            connection.sendall(heard)
            return connection

        pretended = pool.submit(pretend)
        with pytest.raises(ChannelClosed, match="it has another token"):
            connect("127.0.0.1", listener.getsockname()[1], TOKEN, 2)
        pretended.result(10).close()


def test_a_silent_newcomer_is_not_waited_for():
    one, other = tcp_pair()
    assert greet(other, TOKEN, 0.01) is None
    one.close()
    other.close()


def test_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ChannelClosed, match=rf"rank 2 cannot reach the coordinator at 127.0.0.1:{port}: "):
        connect("127.0.0.1", port, TOKEN, 2)


# The control server


@pytest.fixture
def events():
    return queue.SimpleQueue()


@pytest.fixture
def told():
    return []


@pytest.fixture
def server(events, told):
    server = SocketControlServer(
        "127.0.0.1", 0, TOKEN, events, lambda rank: f"ended like rank {rank}", tell=told.append
    )
    assert [server.expect(), server.expect()] == [0, 1]
    yield server
    server.close()


def knock(server, answer):
    connection = socket.create_connection((server.host, server.port))
    connection.sendall(answer(hear_challenge(connection)))
    return connection


def is_sent_away(connection):
    try:
        while connection.recv(1 << 10):
            pass  # a welcome, perhaps: what counts is the end
        return True
    except ConnectionError:
        return True
    finally:
        connection.close()


def speaks(server, events, rank=0):
    """Whether a rank gets in and is heard."""
    rank_side = connect(server.host, server.port, TOKEN, rank)
    rank_side.send({"is": "hello"})
    heard = events.get() == Said(rank, {"is": "hello"})
    server.channels[rank].send({"do": "load"}, b"x")
    return heard and rank_side.receive() == ({"do": "load"}, b"x"), rank_side


NO_TOKEN = "it did not prove that it knows the job's token"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (hello("wrong"), NO_TOKEN),
        (hello(rank=2), "it says that it is member 2, whom nobody waits for"),
        (hello(rank=0xFFFFFFFF), "it says that it is member 4294967295, whom nobody waits for"),
        (words(b"\x16\x03\x01" + bytes(200)), NO_TOKEN),
        (words(b"GET / HTTP/1.1\r\nHost: a.example.org.\r\n\r\n" * 100), NO_TOKEN),
    ],
)
def test_a_stranger_is_sent_away_and_the_job_goes_on(server, events, told, data, why):
    stranger = knock(server, data)
    port = stranger.getsockname()[1]
    assert is_sent_away(stranger)
    assert server.refused == 1
    (line,) = told
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d refused 127\.0\.0\.1:{port}: {why}", line)
    heard, rank_side = speaks(server, events)
    assert heard
    assert events.empty()
    rank_side.close()


def test_who_knocks_for_ever_does_not_fill_the_log(server, told, monkeypatch):
    monkeypatch.setattr(control_server, "MOST_REFUSALS", 2)
    for _ in range(4):
        assert is_sent_away(knock(server, hello("wrong")))
    assert server.refused == 4
    assert [line.endswith("it is the last one that is written down") for line in told] == [False, True]


def test_nothing_is_told_of_who_is_refused_after_the_end(server, told):
    stranger = socket.create_connection((server.host, server.port))
    hear_challenge(stranger)
    server.close()
    stranger.sendall(bytes(HELLO_BYTES))
    assert is_sent_away(stranger)
    assert (server.refused, told) == (1, [])


def test_silent_strangers_keep_nobody_waiting(server, events, monkeypatch):
    monkeypatch.setattr(control_server, "HELLO_TIMEOUT_S", 0.05)
    strangers = [knock(server, words(b"")) for _ in range(3)]
    heard, rank_side = speaks(server, events)
    assert heard
    assert all(is_sent_away(stranger) for stranger in strangers)
    rank_side.close()


def test_a_rank_comes_once(server, events):
    heard, rank_side = speaks(server, events)
    assert heard
    assert is_sent_away(knock(server, hello(rank=0)))
    server.channels[0].send({"do": "go on"})
    assert rank_side.receive()[0] == {"do": "go on"}
    rank_side.close()


def test_members_may_come_at_any_time_and_no_number_is_given_twice(server, events):
    heard, first = speaks(server, events)
    assert heard
    assert server.expect() == 2
    heard, late = speaks(server, events, rank=2)
    assert heard
    first.close()
    assert events.get() == Left(0, "ended like rank 0")
    server.forget(0)
    assert (sorted(server.channels), sorted(server.heard_s())) == ([2], [2])
    assert is_sent_away(knock(server, hello(rank=0)))
    assert server.expect() == 3
    late.close()


def test_who_is_expected_no_more_is_sent_away(server):
    server.forget(1)
    assert is_sent_away(knock(server, hello(rank=1)))


@pytest.mark.parametrize(
    "last_words",
    [b"", b"garbage that is no header", HEADER.pack(b"nfC1", 0xFFFFFFFF, 0), HEADER.pack(b"nfC1", 2, 0) + b"[]"],
)
def test_how_a_rank_ended_is_an_event(server, events, last_words):
    connection = knock(server, hello(rank=1, then=last_words))
    connection.close()
    assert events.get() == Left(1, "ended like rank 1")


def test_a_rank_that_still_runs_has_closed_its_connection(events):
    server = SocketControlServer("127.0.0.1", 0, TOKEN, events, lambda rank: None, tell=print)
    server.expect()
    knock(server, hello()).close()
    assert events.get() == Left(0, "closed its connection")
    server.close()


def test_signs_of_life_are_heard_and_are_no_events(server, events):
    heard, rank_side = speaks(server, events, rank=1)
    assert heard
    assert list(server.heard_s()) == [1]
    before_s = server.heard_s()[1]
    beating = Heartbeat(rank_side, period_s=0.001).thread
    pause = threading.Event()
    while server.heard_s()[1] == before_s:
        pause.wait(0.001)  # a sign of life is no event that one could wait for
    assert events.empty()
    rank_side.close()
    beating.join(10)
    assert not beating.is_alive()
    assert events.get() == Left(1, "ended like rank 1")


def test_closing_the_door_ends_all_conversations(server, events):
    _, rank_side = speaks(server, events)
    server.close()
    with pytest.raises(ChannelClosed):
        rank_side.receive()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((server.host, server.port))
    server.close()
    rank_side.close()


def test_a_port_in_use_is_said_with_what_to_do(server, events):
    with pytest.raises(
        ClusterError, match=rf"cannot listen on 127.0.0.1, port {server.port}: .* Use another --port, or"
    ):
        SocketControlServer("127.0.0.1", server.port, TOKEN, events, lambda rank: None, tell=print)


def test_an_address_that_is_not_ours(events):
    with pytest.raises(ClusterError, match=r"cannot listen on 192.0.2.1, port 0: "):
        SocketControlServer("192.0.2.1", 0, TOKEN, events, lambda rank: None, tell=print)


def test_ranks_that_are_threads_are_heard_and_leave(events):
    server = ThreadControlServer(events, lambda rank: f"ended like rank {rank}")
    assert [server.expect(), server.expect()] == [0, 1]
    server.far_ends[1].send({"is": "hello"})
    assert events.get() == Said(1, {"is": "hello"})
    server.channels[1].send({"do": "load"})
    assert server.far_ends[1].receive() == ({"do": "load"}, b"")
    server.far_ends[1].close()
    assert events.get() == Left(1, "ended like rank 1")
    server.forget(1)
    assert (server.expect(), sorted(server.channels)) == (2, [0, 2])
    assert server.heard_s() == {}, "a thread cannot fall silent alone"
    server.close()
    assert {events.get().member, events.get().member} == {0, 2}


class SlowDisk:
    """Takes so long to write a piece that it looks at the server meanwhile."""

    def __init__(self) -> None:
        self.server, self.was_heard = None, []

    def _look(self, rank):
        begin_s = time.monotonic()
        self.was_heard.append(self.server.heard_s()[rank] >= begin_s)

    def add(self, rank, name, data):
        self._look(rank)

    def end(self, rank):
        self._look(rank)

    def close(self):
        """Nothing to close."""


def test_a_rank_whose_file_is_being_written_counts_as_heard(events):
    disk = SlowDisk()
    server = disk.server = SocketControlServer(
        "127.0.0.1", 0, TOKEN, events, lambda rank: None, tell=print, spools=disk
    )
    server.expect()
    rank_side = connect(server.host, server.port, TOKEN, 0)
    rank_side.send({"is": "piece", "of": "model"}, b"a piece")
    rank_side.send({"is": "finished", "has_file": True})
    assert events.get() == Said(0, {"is": "finished", "has_file": True})
    assert disk.was_heard == [True, True]
    server.close()
    rank_side.close()


def test_a_channel_that_was_busy_has_heard_the_other_side_until_then():
    one, other = tcp_pair()
    seconds = itertools.count(100.0)
    channel = SocketChannel(other, clock=lambda: next(seconds))
    with channel.busy():
        assert [channel.heard_s, channel.heard_s] == [101.0, 102.0]
    assert [channel.heard_s, channel.heard_s] == [103.0, 103.0]
    one.close()
    channel.close()
