"""Connected transports of every kind, all ranks in this process, and small blocking calls to use them."""

import atexit
import contextlib
import functools
import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from nfold.hosts.managers.mpi.mpi_start import started_together
from nfold.transport.connecting.job_token import new_token
from nfold.transport.implementations.in_memory import MemoryNetwork
from nfold.transport.implementations.mpi_transport import MpiConnections
from nfold.transport.implementations.tcp import Listener, TcpConnections
from nfold.transport.links.mpi_loop import MpiLoop, Peer, load_mpi

if TYPE_CHECKING:
    from nfold.errors import TransportError

WAIT_S = 10.0
TOKEN = "a secret"
LATE_S = 0.005


def each_rank(world_size: int, call: Callable[[int], Any]) -> list[Any]:
    """Call a function for every rank at once, as separate processes would."""
    with ThreadPoolExecutor(world_size) as pool:
        return [future.result(WAIT_S) for future in [pool.submit(call, rank) for rank in range(world_size)]]


def connect_memory(num_members: int) -> list[Any]:
    network = MemoryNetwork(num_members)
    return [network.connections(member) for member in range(num_members)]


def connect_tcp(num_members: int, delay_s: float = 0.0, token: str = TOKEN) -> list[Any]:
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(Listener("127.0.0.1")) for _ in range(num_members)]
        addresses = {member: listener.address for member, listener in enumerate(listeners)}
        delays_s = dict.fromkeys(addresses, delay_s)
        members = [TcpConnections(member, token, delays_s=delays_s) for member in addresses]
        each_rank(num_members, lambda member: members[member].meet(listeners[member], addresses, WAIT_S))
        return members


def connect_late(num_members: int) -> list[Any]:
    return connect_tcp(num_members, LATE_S)


def connect_tls(num_members: int) -> list[Any]:
    return connect_tcp(num_members, token=encrypted_token())


@functools.cache
def encrypted_token() -> str:
    """One for all tests."""
    return new_token(encrypted=True)


def connect_mpi(num_members: int) -> list[Any]:
    """Connect members of this process, each pair by tags of its own, which no world before has used."""
    first = next(FIRST_TAGS)
    members = [MpiConnections(member, mpi_loop(), piece_bytes=1 << 20) for member in range(num_members)]
    for here, connections in enumerate(members):
        tags = {there: (first + 4 * here + there, first + 4 * there + here) for there in range(num_members)}
        connections.meet({there: Peer(0, *pair) for there, pair in tags.items()})
    return members


FIRST_TAGS = itertools.count(0, 16)


@functools.cache
def mpi_loop() -> MpiLoop:
    """One for all tests: MPI is entered once. Its name is none of a thread that has to be gone after each."""
    loop = MpiLoop("mpi", load_mpi())
    atexit.register(loop.leave)
    return loop


CONNECT = {"memory": connect_memory, "tcp": connect_tcp, "tcp-late": connect_late, "tls": connect_tls}
if started_together(os.environ):
    CONNECT = {"mpi": connect_mpi}


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
    """All members of a job, in this process, in its first generation at the beginning."""

    def __init__(self, members: list[Any]) -> None:
        self.members = members
        self.begin(0, range(len(members)))

    def begin(self, number: int, members: Sequence[int]) -> None:
        """Let a generation begin at all of its members, by rank."""
        self.transports = [self.members[member].begin(number, members) for member in members]
        self.failures: list[queue.Queue[TransportError]] = [queue.Queue() for _ in members]
        for transport, seen in zip(self.transports, self.failures, strict=True):
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
        receipt = self.receive(source, target, 2**44 - 1, 0)
        self.send(source, target, 2**44 - 1, b"")
        receipt.wait()

    def failure(self, rank: int) -> Any:
        """Return the next failure that a rank is told."""
        return self.failures[rank].get(timeout=WAIT_S)

    def close(self) -> None:
        """Close all members at once, as at the end of a job."""
        each_rank(len(self.members), lambda member: self.members[member].close())


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
