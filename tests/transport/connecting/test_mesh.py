"""How the ranks of a TCP mesh find each other, whoever else knocks."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import Any

import pytest

from nfold.errors import ClusterError, TransportError
from nfold.transport.connecting.token_proof import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    Hello,
    pack_challenge,
    pack_hello,
    unpack_challenge,
)
from nfold.transport.generations.generation_transport import GenerationTransport
from nfold.transport.implementations.tcp import Address, Listener, TcpConnections
from nfold.transport.links.framing import HEADER_BYTES, FrameHeader, Kind, pack_header

TOKEN = "a secret"


@pytest.fixture
def listeners() -> Iterator[list[Listener]]:
    """Two listeners on this machine."""
    with Listener("127.0.0.1") as first, Listener("127.0.0.1") as second:
        yield [first, second]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads that play ranks."""
    with ThreadPoolExecutor(4) as executor:
        yield executor


def join(
    pool: ThreadPoolExecutor, rank: int, listeners: list[Listener], token: str = TOKEN, timeout_s: float = 10.0
) -> "Future[TcpConnections]":
    addresses = [listener.address for listener in listeners]
    return pool.submit(meet, rank, listeners[rank], addresses, token, timeout_s)


def meet(rank: int, listener: Listener, addresses: list[Address], token: str, timeout_s: float) -> TcpConnections:
    """Connect to all other members."""
    connections = TcpConnections(rank, token)
    try:
        connections.meet(listener, dict(enumerate(addresses)), timeout_s)
    except TransportError:
        connections.abort()
        raise
    return connections


Answer = Callable[[bytes], bytes]
"""What a dialer says to the nonce of a challenge."""


def stranger(address: Address, answer: Answer) -> socket.socket:
    connection = socket.create_connection(address, timeout=10)
    challenge = connection.recv(CHALLENGE_BYTES, socket.MSG_WAITALL)
    connection.sendall(answer(unpack_challenge(challenge)))
    return connection


def hello(source: int, target: int, token: str = TOKEN, role: str = "dial") -> Answer:
    return lambda nonce: pack_hello(Hello(source, target, bytes(16)), token, role, nonce)


def words(data: bytes) -> Answer:
    return lambda nonce: data


def check_and_close(*members: TcpConnections, number: int = 0) -> None:
    """See that two members can talk."""
    done, into = threading.Event(), bytearray(2)
    transports = [member.begin(number, (0, 1)) for member in members]
    transports[1].receive(0, 1, memoryview(into), done.set)
    transports[0].send(1, 1, memoryview(b"ok"), lambda: None)
    assert done.wait(10)
    threads = [threading.Thread(target=member.close) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)


WRONG_WORDS: dict[str, Answer] = {
    "garbage": words(b"\xff" * 500),
    "http": words(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b" " * HELLO_BYTES),
    "wrong token": hello(1, 0, "another secret"),
    "an answer, not a call": hello(1, 0, role="answer"),
    "another target": hello(1, 5),
    "a rank that does not exist": hello(9, 0),
    "what was right in another connection": words(hello(1, 0)(b"of another time.")),
}


@pytest.mark.parametrize("answer", WRONG_WORDS.values(), ids=WRONG_WORDS.keys())
def test_strangers_are_dropped_and_the_mesh_forms(
    answer: Answer, listeners: list[Listener], pool: ThreadPoolExecutor
) -> None:
    first = join(pool, 0, listeners)
    with closing(stranger(listeners[0].address, answer)) as connection:
        assert hung_up(connection)
    second = join(pool, 1, listeners)
    check_and_close(first.result(10), second.result(10))


def hung_up(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_silent_and_slow_strangers_hold_up_nobody(listeners: list[Listener], pool: ThreadPoolExecutor) -> None:
    first = join(pool, 0, listeners)
    strangers = [
        stranger(listeners[0].address, lambda nonce, length=length: hello(1, 0)(nonce)[:length])
        for length in range(HELLO_BYTES)
    ]
    strangers += [stranger(listeners[0].address, words(b"")) for _ in range(100)]
    second = join(pool, 1, listeners)
    check_and_close(first.result(1.5), second.result(1.5))
    for connection in strangers:
        connection.close()


def test_who_has_another_token_is_told(listeners: list[Listener], pool: ThreadPoolExecutor) -> None:
    first, intruder = join(pool, 0, listeners), join(pool, 1, listeners, token="another secret")
    with pytest.raises(TransportError, match=r"member 1 cannot join member 0 at 127.0.0.1:\d+.*another token"):
        intruder.result(10)
    second = join(pool, 1, listeners)
    check_and_close(first.result(10), second.result(10))


@pytest.mark.parametrize(
    "answer",
    [
        lambda heard: pack_hello(Hello(0, 1, bytes(16)), "another secret", "answer", heard[20:36]),
        lambda heard: pack_hello(Hello(0, 1, bytes(16)), TOKEN, "answer", b"of another time."),
        lambda heard: heard,
    ],
    ids=["another token", "from another connection", "echo"],
)
def test_an_acceptor_without_the_token_is_not_believed(
    answer: Callable[[bytes], bytes], listeners: list[Listener], pool: ThreadPoolExecutor
) -> None:
    listeners[0].socket.setblocking(True)
    second = join(pool, 1, listeners)
    connection, _ = listeners[0].socket.accept()
    with closing(connection):
        connection.sendall(pack_challenge(bytes(16)))
        theirs = connection.recv(HELLO_BYTES, socket.MSG_WAITALL)
        connection.sendall(answer(theirs))
        with pytest.raises(TransportError, match="another token"):
            second.result(10)


def test_the_timeout_names_who_is_missing(pool: ThreadPoolExecutor) -> None:
    with Listener("127.0.0.1") as one, Listener("127.0.0.1") as two, Listener("127.0.0.1") as three:
        meshes = [join(pool, rank, [one, two, three], timeout_s=0.3) for rank in (0, 1)]
        for mesh in meshes:
            with pytest.raises(TransportError, match=r"did not meet member 2 \(127.0.0.1:\d+\)"):
                mesh.result(10)


def test_a_dialer_waits_until_its_peer_listens(pool: ThreadPoolExecutor) -> None:
    with Listener("127.0.0.1") as one, Listener("127.0.0.1") as two:
        address = one.address
        one.close()
        second = join_at(pool, 1, two, [address, two.address])
        with Listener(*address) as one_again:
            first = join_at(pool, 0, one_again, [address, two.address])
            check_and_close(first.result(10), second.result(10))


def join_at(pool: ThreadPoolExecutor, rank: int, listener: Listener, addresses: list[Address]) -> Any:
    return pool.submit(meet, rank, listener, addresses, TOKEN, 10.0)


def test_who_cannot_be_dialled_stands_last_and_dials(listeners: list[Listener], pool: ThreadPoolExecutor) -> None:
    addresses = {1: listeners[1].address, 0: ("127.0.0.1", 1)}
    members = [TcpConnections(member, TOKEN) for member in range(2)]
    meetings = [pool.submit(members[i].meet, listeners[i], addresses, 10.0) for i in range(2)]
    for meeting in meetings:
        meeting.result()
    assert [sorted(member.peers) for member in members] == [[1], [0]]
    for member in members:
        member.abort()


def test_one_member_needs_nobody(pool: ThreadPoolExecutor) -> None:
    with Listener("127.0.0.1") as only:
        connections = join(pool, 0, [only]).result(10)
        transport = connections.begin(0, (0,))
        assert (transport.world_size, transport.sent_bytes) == (1, 0)
        connections.close()


def test_who_is_met_already_is_not_met_again(listeners: list[Listener], pool: ThreadPoolExecutor) -> None:
    members = [each.result(10) for each in (join(pool, 0, listeners), join(pool, 1, listeners))]
    with Listener("127.0.0.1") as third:
        everybody = [*listeners, third]
        addresses = {member: listener.address for member, listener in enumerate(everybody)}
        joiner = join(pool, 2, everybody)
        for future in [pool.submit(members[i].meet, listeners[i], addresses, 10.0) for i in (0, 1)]:
            future.result(10)
        assert members[0].peers == {1, 2}
        members.append(joiner.result(10))
    members[0].leave(2)
    assert members[0].peers == {1}
    members[2].close()
    check_and_close(*members[:2])


def test_a_meeting_can_be_ended_and_who_was_met_stays_met(listeners: list[Listener], pool: ThreadPoolExecutor) -> None:
    """Member 2 never comes, and both are called back: they go on without it, over the connection that they have."""
    members = [TcpConnections(member, TOKEN) for member in (0, 1)]
    stops = [threading.Event(), threading.Event()]
    with Listener("127.0.0.1") as third:
        addresses = {member: listener.address for member, listener in enumerate([*listeners, third])}
        meetings = [pool.submit(members[i].meet, listeners[i], addresses, 60.0, stops[i]) for i in (0, 1)]
        while not all(member.peers for member in members):
            assert not wait(meetings, timeout=0.01).done, "they wait for member 2"
        for stop, meeting in zip(stops, meetings, strict=True):
            stop.set()
            with pytest.raises(TransportError, match="was ended while its members met"):
                meeting.result(10)
    del addresses[2]
    for i in (0, 1):
        members[i].meet(listeners[i], addresses, 10.0)
    check_and_close(*members)


def test_who_dials_a_member_that_does_not_meet_yet_can_be_called_back(
    listeners: list[Listener], pool: ThreadPoolExecutor
) -> None:
    """Its connection waits where the other listens; what comes of it later is nothing to the next meeting."""
    members, stop = [TcpConnections(member, TOKEN) for member in (0, 1)], threading.Event()
    addresses = {member: listener.address for member, listener in enumerate(listeners)}
    vain = pool.submit(members[1].meet, listeners[1], addresses, 60.0, stop)
    assert select.select([listeners[0].socket], [], [], 10.0)[0], "somebody knocks"
    stop.set()
    with pytest.raises(TransportError, match="was ended while its members met"):
        vain.result(10)
    for future in [pool.submit(members[i].meet, listeners[i], addresses, 10.0) for i in (0, 1)]:
        future.result(20)
    check_and_close(*members)


def test_who_was_lost_is_met_anew(listeners: list[Listener], pool: ThreadPoolExecutor) -> None:
    members = [each.result(10) for each in (join(pool, 0, listeners), join(pool, 1, listeners))]
    lost = threading.Event()
    for member in members:
        member.begin(0, (0, 1)).on_failure(lambda error: lost.set())
    members[1].abort()
    assert lost.wait(10)
    again = join(pool, 1, listeners)
    addresses = {member: listener.address for member, listener in enumerate(listeners)}
    members[0].meet(listeners[0], addresses, 10.0)
    assert members[0].lost == frozenset()
    check_and_close(members[0], again.result(10), number=1)


def test_a_port_in_use_is_named(listeners: list[Listener]) -> None:
    host, port = listeners[0].address
    with pytest.raises(ClusterError, match=rf"cannot listen on {host}, port {port}: Address already in use.*another"):
        Listener(host, port)


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(ClusterError, match=r"cannot listen on 192\.0\.2\.1, port 0"):
        Listener("192.0.2.1")


def one_end(max_early_bytes: int = 100) -> tuple[TcpConnections, GenerationTransport, socket.socket]:
    """Return rank 0 of two, and the bare socket that rank 1 would write to."""
    with Listener("127.0.0.1") as listener:
        theirs = socket.create_connection(listener.address, timeout=10)
        listener.socket.setblocking(True)
        connection, _ = listener.socket.accept()
    connections = TcpConnections(0, TOKEN, max_early_bytes=max_early_bytes)
    connections.add(1, connection)
    return connections, connections.begin(0, (0, 1)), theirs


BROKEN_FRAMES: dict[str, tuple[bytes, str]] = {
    "no header": (b"\xff" * HEADER_BYTES, "not the start of an nfold frame"),
    "unknown kind": (pack_header(FrameHeader(Kind.DATA))[:4] + b"\x09" + b"\0" * 19, "not the start of an nfold frame"),
    "terabytes": (pack_header(FrameHeader(Kind.DATA, 1, 2**42)), "at most 100 bytes are kept unasked"),
    "a tag twice": (pack_header(FrameHeader(Kind.DATA, 1)) * 2, "sent tag 1 twice"),
    "an answer to no goodbye": (pack_header(FrameHeader(Kind.ANSWER)), "gave up"),
    "half a frame, then the end": (pack_header(FrameHeader(Kind.DATA, 1, 9)) + b"half", "closed the connection"),
}


@pytest.mark.parametrize(("words", "complaint"), BROKEN_FRAMES.values(), ids=BROKEN_FRAMES.keys())
def test_broken_frames_fail_the_peer(words: bytes, complaint: str) -> None:
    connections, transport, wire = one_end()
    failed, errors = threading.Event(), []

    def fail(error: TransportError) -> None:
        errors.append(error)
        failed.set()

    transport.on_failure(fail)
    with closing(wire):
        wire.sendall(words)
        wire.shutdown(socket.SHUT_WR)
        assert failed.wait(10)
        connections.close()
    assert [str(error).partition(": ")[0] for error in errors] == ["rank 0 lost rank 1"]
    assert complaint in str(errors[0])


def test_a_receive_may_be_posted_when_half_of_its_message_is_here() -> None:
    connections, transport, wire = one_end()
    begun, done, into = threading.Event(), threading.Event(), bytearray(8)
    transport.receive(1, 1, memoryview(bytearray()), begun.set)
    with closing(wire):
        wire.sendall(pack_header(FrameHeader(Kind.DATA, 1)) + pack_header(FrameHeader(Kind.DATA, 2, 8)) + b"half")
        assert begun.wait(10)
        transport.receive(1, 2, memoryview(into), done.set)
        assert not done.is_set()
        wire.sendall(b"half")
        assert done.wait(10)
        wire.sendall(pack_header(FrameHeader(Kind.GOODBYE)))
        connections.close()
    assert bytes(into) == b"halfhalf"


def test_a_done_that_raises_is_told_as_a_failure() -> None:
    connections, transport, wire = one_end()
    told: Any = Future()
    transport.on_failure(told.set_result)

    def stumble() -> None:
        raise ValueError("my mistake")

    transport.receive(1, 1, memoryview(bytearray()), stumble)
    with closing(wire):
        wire.sendall(pack_header(FrameHeader(Kind.DATA, 1)))
        assert "ValueError: my mistake" in str(told.result(10))
        connections.close()


def test_a_peer_that_does_not_read_does_not_hold_up_close() -> None:
    connections, transport, wire = one_end()
    transport.send(1, 1, memoryview(bytearray(64 << 20)), lambda: None)
    with closing(wire):
        assert_ends(connections.close)


def assert_ends(call: Callable[[], None]) -> None:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert not [left.name for left in threading.enumerate() if left.name.startswith("nfold-")]
