"""A socket that carries a link: however its bytes come, each target is filled with its own, and none waits for more."""

import queue
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from heard_wire import HeardWire, any_segments

from nfold.transport.connecting.job_token import key_and_certificate, new_token
from nfold.transport.connecting.tls_socket import TlsSocket
from nfold.transport.links.framing import Frame
from nfold.transport.links.link import Link
from nfold.transport.links.loop import Loop
from nfold.transport.links.tcp_carrier import LEAST_UNSENT_BYTES, MOST_UNSENT_BYTES, SocketCarrier
from nfold.transport.links.tls_carrier import TlsCarrier

pytestmark = pytest.mark.timeout(30)
SIZES = (1, 24, (16 << 10) - 1, 16 << 10, (16 << 10) + 1, 50_000, 70_000, 300_000)
SEGMENTS = (1, 100, 1448, 2896, 9000, 65_536)
WAIT_S = 10.0
SEALING_BYTES = 22
"""That TLS 1.3 adds to a record."""


class Asking(Link):
    """Asks for targets of given sizes, and gives given frames."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.filled: queue.Queue[bytes] = queue.Queue()
        self.frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self.errors: queue.Queue[Exception] = queue.Queue()
        self._ending = self._lost = False

    def incoming(self) -> Iterator[memoryview]:
        for size in self.sizes:
            target = memoryview(bytearray(size))
            yield target
            self.filled.put(bytes(target))

    def take(self) -> Frame | None:
        return None if self.frames.empty() else self.frames.get()

    def fail(self, error: Exception) -> None:
        self.errors.put(error)


Carry = Callable[[list[int]], tuple[socket.socket, SocketCarrier, Asking]]


def tcp_ends() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection; theirs waits, but not for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname(), timeout=WAIT_S)
        ours, _ = server.accept()
    theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return theirs, ours


def tls_ends(ends: tuple[socket.socket, socket.socket]) -> tuple[TlsSocket, TlsSocket]:
    """Encrypt a connection, and say a first word over it."""
    pair = key_and_certificate(new_token(encrypted=True))
    assert pair is not None
    theirs, ours = TlsSocket(ends[0], *pair, accepts=False), TlsSocket(ends[1], *pair, accepts=True)
    first = threading.Thread(target=theirs.sendall, args=(b"!",))
    first.start()
    assert ours.recv(1) == b"!"
    first.join()
    return theirs, ours


@pytest.fixture(params=["plain", "tls"])
def carry(request: pytest.FixtureRequest) -> Iterator[Carry]:
    loop = Loop("nfold-io")
    opened: list[tuple[socket.socket, SocketCarrier]] = []

    def make(sizes: list[int]) -> tuple[socket.socket, SocketCarrier, Asking]:
        theirs, ours = tcp_ends()
        link = Asking(sizes)
        if request.param == "tls":
            theirs, ours = tls_ends((theirs, ours))
            carrier: SocketCarrier = TlsCarrier(loop, ours, link)
        else:
            carrier = SocketCarrier(loop, ours, link)
        carrier.start()
        opened.append((theirs, carrier))
        return theirs, carrier, link

    yield make
    for theirs, carrier in opened:
        carrier.close(time.monotonic())
        theirs.close()
    loop.close()
    assert "nfold-io" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("seed", range(4))
def test_targets_of_any_size_are_filled_from_segments_of_any_size(carry: Carry, seed: int) -> None:
    drawn = random.Random(seed)
    sizes = [drawn.choice(SIZES) for _ in range(60)]
    theirs, _, link = carry(sizes)
    data = drawn.randbytes(sum(sizes))

    sent = 0
    while sent < len(data):
        length = drawn.choice(SEGMENTS)
        theirs.sendall(data[sent : sent + length])
        sent += length

    begin = 0
    for size in sizes:
        assert link.filled.get(timeout=WAIT_S) == data[begin : begin + size]
        begin += size


def test_the_rest_of_a_target_comes_alone(carry: Carry) -> None:
    """Nothing follows it: a reader that waits for as much as before would wait for ever."""
    theirs, _, link = carry([20_000] * 4)
    for first in (1, 10_000, 16_384, 19_999):
        theirs.sendall(bytes(first))
        late = threading.Timer(0.02, theirs.sendall, [bytes(20_000 - first)])
        late.start()
        assert len(link.filled.get(timeout=WAIT_S)) == 20_000
        late.join()


def test_who_closes_amid_a_target_is_told_of(carry: Carry) -> None:
    theirs, _, link = carry([100_000])
    theirs.sendall(bytes(30_000))
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError, match="closed the connection"):
        raise link.errors.get(timeout=WAIT_S)


def test_sockets_are_served_side_by_side(carry: Carry) -> None:
    """One whose peer does not read holds up no other: neither what is sent to it nor what comes from it."""
    _, stuck, stuck_link = carry([1])
    theirs, moving, moving_link = carry([50_000])
    gone = threading.Event()
    large = bytes(64 << 20)
    stuck_link.frames.put(Frame([memoryview(large)], len(large), gone.set))
    stuck.wake()
    small = random.Random(0).randbytes(300_000)
    moving_link.frames.put(Frame([memoryview(small[:24]), memoryview(small[24:])], len(small), threading.Event().set))
    moving.wake()

    read = bytearray()
    while len(read) < len(small):
        read += theirs.recv(1 << 16)
    theirs.sendall(bytes(50_000))

    assert bytes(read) == small
    assert moving_link.filled.get(timeout=WAIT_S) == bytes(50_000)
    assert not gone.is_set()


def test_the_kernel_takes_no_more_than_a_little_beyond_what_is_on_its_way(carry: Carry) -> None:
    """What it has taken of a long message goes before a message to another peer can."""
    theirs, carrier, _ = carry([1])
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    large = memoryview(bytes(64 << 20))
    taken = carrier.try_write([large])
    assert 0 < taken < len(large)
    again = carrier.try_write([large[taken:]])
    assert again <= MOST_UNSENT_BYTES, "it is full"


@pytest.mark.parametrize(
    ("asked", "limit"),
    [(10, LEAST_UNSENT_BYTES), (62_500, 62_500), (1_250_000, MOST_UNSENT_BYTES), (None, MOST_UNSENT_BYTES)],
)
def test_the_kernel_takes_as_much_ahead_as_it_is_allowed_within_bounds(
    carry: Carry, asked: int | None, limit: int
) -> None:
    _, carrier, _ = carry([1])
    carrier.limit_unsent(asked)
    assert carrier._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == limit


@pytest.mark.parametrize("seed", range(3))
def test_records_may_be_cut_anywhere_on_their_way(seed: int) -> None:
    """What is waited for must be able to come: a part of a record lies in memory, where the kernel cannot count it."""
    drawn, loop = random.Random(seed), Loop("nfold-io")
    sizes = [drawn.choice(SIZES) for _ in range(40)]
    data, link = drawn.randbytes(sum(sizes)), Asking(sizes)
    with socket.create_server(("127.0.0.1", 0)) as server, HeardWire(server.getsockname(), any_segments(seed)) as wire:
        dialled = socket.create_connection(wire.address, timeout=WAIT_S)
        theirs, ours = tls_ends((dialled, server.accept()[0]))
        carrier = TlsCarrier(loop, ours, link)
        carrier.start()
        theirs.sendall(data)
        assert b"".join(link.filled.get(timeout=WAIT_S) for _ in sizes) == data
        carrier.close(time.monotonic())
        theirs.close()
        loop.close()


def test_first_words_that_came_with_the_last_of_the_meeting_are_read() -> None:
    """They lie in memory already: the kernel has nothing to tell of."""
    loop, link = Loop("nfold-io"), Asking([1, 40_000])
    theirs, ours = tls_ends(tcp_ends())
    theirs.sendall(b"?")
    theirs.sendall(bytes(40_001))
    left_bytes = 40_002 + 4 * SEALING_BYTES
    while left_bytes:
        left_bytes -= ours.fetch()
    assert ours.recv(1) == b"?"
    carrier = TlsCarrier(loop, ours, link)
    carrier.start()
    assert [len(link.filled.get(timeout=WAIT_S)) for _ in range(2)] == [1, 40_000]
    carrier.close(time.monotonic())
    theirs.close()
    loop.close()
