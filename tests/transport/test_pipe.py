"""A socket as a pipe: however its bytes come in, each target is filled with its own, and nothing waits for more."""

import random
import socket
import threading
from collections.abc import Iterator

import pytest

from nfold.transport.tcp import SocketPipe

pytestmark = pytest.mark.timeout(30)
SIZES = (1, 24, (16 << 10) - 1, 16 << 10, (16 << 10) + 1, 50_000, 70_000, 300_000)
SEGMENTS = (1, 100, 1448, 2896, 9000, 65_536)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, SocketPipe]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    pipe = SocketPipe(receiver)
    with sender:
        yield sender, pipe
    pipe.close()


def read(pipe: SocketPipe, num_bytes: int) -> memoryview:
    target = memoryview(bytearray(num_bytes))
    pipe.read_into(target)
    return target


@pytest.mark.parametrize("seed", range(4))
def test_targets_of_any_size_are_filled_from_segments_of_any_size(
    ends: tuple[socket.socket, SocketPipe], seed: int
) -> None:
    sender, pipe = ends
    drawn = random.Random(seed)
    sizes = [drawn.choice(SIZES) for _ in range(60)]
    data = drawn.randbytes(sum(sizes))

    def feed() -> None:
        sent = 0
        while sent < len(data):
            length = drawn.choice(SEGMENTS)
            sender.sendall(data[sent : sent + length])
            sent += length

    feeder = threading.Thread(target=feed)
    feeder.start()
    begin = 0
    for size in sizes:
        assert read(pipe, size) == data[begin : begin + size]
        begin += size
    feeder.join()


def test_the_rest_of_a_target_comes_alone(ends: tuple[socket.socket, SocketPipe]) -> None:
    """Nothing follows it: a reader that waits for as much as before would wait for ever."""
    sender, pipe = ends
    for first in (1, 10_000, 16_384, 19_999):
        sender.sendall(bytes(first))
        late = threading.Timer(0.02, sender.sendall, [bytes(20_000 - first)])
        late.start()
        assert len(read(pipe, 20_000)) == 20_000
        late.join()


def test_who_closes_amid_a_target_is_told_of(ends: tuple[socket.socket, SocketPipe]) -> None:
    sender, pipe = ends
    sender.sendall(bytes(30_000))
    sender.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError, match="closed the connection"):
        read(pipe, 100_000)
