"""Connected transports of every kind, all ranks in this process, and small blocking calls to use them."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from nfold.transport.memory import MemoryNetwork
from nfold.transport.tcp import Listener, connect_mesh
from nfold.transport.torch_distributed import StoreServer, connect_group

if TYPE_CHECKING:
    from nfold.errors import TransportError

WAIT_S = 10.0
TOKEN = "a secret"
LATE_S = 0.005


def each_rank(world_size: int, call: Callable[[int], Any]) -> list[Any]:
    """Call a function for every rank at once, as separate processes would."""
    with ThreadPoolExecutor(world_size) as pool:
        return [future.result(WAIT_S) for future in [pool.submit(call, rank) for rank in range(world_size)]]


def connect_memory(world_size: int) -> list[Any]:
    network = MemoryNetwork(world_size)
    return [network.transport(rank) for rank in range(world_size)]


def connect_tcp(world_size: int, delays_s: Sequence[float] = ()) -> list[Any]:
    listeners = [Listener("127.0.0.1") for _ in range(world_size)]
    addresses = [listener.address for listener in listeners]
    try:
        return each_rank(
            world_size,
            lambda rank: connect_mesh(rank, world_size, listeners[rank], addresses, TOKEN, WAIT_S, delays_s),
        )
    finally:
        for listener in listeners:
            listener.close()


def connect_gloo(world_size: int) -> list[Any]:
    server = StoreServer("127.0.0.1")
    try:
        return each_rank(
            world_size, lambda rank: connect_group(rank, world_size, "127.0.0.1", server.address, TOKEN, WAIT_S)
        )
    finally:
        server.close()


def connect_late(world_size: int) -> list[Any]:
    return connect_tcp(world_size, [LATE_S] * world_size)


CONNECT = {"memory": connect_memory, "tcp": connect_tcp, "tcp-late": connect_late, "gloo": connect_gloo}


@dataclass
class Receipt:
    """A receive whose message can be waited for."""

    data: bytearray
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> bytes:
        """Return the message once it is here."""
        assert self.done.wait(WAIT_S), "the message did not come"
        return bytes(self.data)


class World:
    """All ranks of a job, in this process."""

    def __init__(self, transports: list[Any]) -> None:
        self.transports = transports
        self.failures: list[queue.Queue[TransportError]] = [queue.Queue() for _ in transports]
        for transport, seen in zip(transports, self.failures, strict=True):
            transport.on_failure(seen.put)

    def send(self, source: int, target: int, tag: int, data: bytes | bytearray) -> threading.Event:
        """Send, and return what is set when that is done."""
        done = threading.Event()
        self.transports[source].send(target, tag, memoryview(data), done.set)
        return done

    def receive(self, source: int, target: int, tag: int, length: int) -> Receipt:
        """Post a receive at the target."""
        receipt = Receipt(bytearray(length))
        self.transports[target].receive(source, tag, memoryview(receipt.data), receipt.done.set)
        return receipt

    def settle(self, source: int, target: int) -> None:
        """Return when all that was sent before from source to target has arrived."""
        receipt = self.receive(source, target, 2**63, 0)
        self.send(source, target, 2**63, b"")
        receipt.wait()

    def failure(self, rank: int) -> Any:
        """Return the next failure that a rank is told."""
        return self.failures[rank].get(timeout=WAIT_S)

    def close(self) -> None:
        """Close all ranks at once, as at the end of a job."""
        each_rank(len(self.transports), lambda rank: self.transports[rank].close())


@pytest.fixture(params=list(CONNECT))
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[int], World]]:
    """Make worlds over each transport, close them, and see that no thread is left."""
    worlds: list[World] = []

    def make(world_size: int) -> World:
        worlds.append(World(CONNECT[request.param](world_size)))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("nfold-")]
