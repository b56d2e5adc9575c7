"""Turns a listening socket and a list of addresses into one proven connection per peer.

Rank i dials every lower rank and accepts every higher one. Strangers are dropped and do not hold up the others: one
thread listens to all unproven connections at once, one dials each lower rank.
"""

import queue
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nfold.errors import ClusterError, TransportError
from nfold.transport.handshake import HELLO_BYTES, Hello, pack_hello, unpack_hello

Address = tuple[str, int]

HELLO_S = 2.0
"""How long a new connection may take to say who it is."""
MAX_UNPROVEN = 128
"""Connections that have not said yet who they are; the oldest is dropped for a new one."""
RETRY_S = 0.05
MAX_REFUSALS = 3
"""How often a peer may hang up on our hello before we believe that it means it."""


class Listener:
    """A listening socket. It may serve one mesh after another; the owner closes it."""

    def __init__(self, host: str, port: int = 0) -> None:
        """Listen on an address of this machine; port 0 takes any free one.

        Raises:
            ClusterError: the address is not ours, or the port is in use.
        """
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self.socket = socket.create_server(address[:2], family=family, backlog=256)
        except OSError as error:
            raise ClusterError(
                f"cannot listen on {host}, port {port}: {error.strerror or error}. "
                f"Give another port (0 takes any free one), or an address of this machine."
            ) from error
        self.socket.setblocking(False)

    @property
    def address(self) -> Address:
        """Return the host and port that peers dial."""
        host, port = self.socket.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshOrder:
    """What one rank needs to know to find its peers."""

    rank: int
    addresses: Sequence[Address]
    """Of every rank, by rank."""
    token: str
    timeout_s: float


@dataclass(slots=True)
class _Meeting:
    """What the threads of one mesh share."""

    order: MeshOrder
    deadline_s: float
    met: "queue.Queue[tuple[int, socket.socket | TransportError]]" = field(default_factory=queue.Queue)
    stop: threading.Event = field(default_factory=threading.Event)

    def left_s(self) -> float:
        """Return the seconds until the deadline, at least a little."""
        return max(1e-3, self.deadline_s - time.monotonic())


def form_mesh(listener: Listener, order: MeshOrder) -> dict[int, socket.socket]:
    """Connect to every other rank.

    Raises:
        TransportError: some rank refused us or did not come in time.
    """
    meeting = _Meeting(order, time.monotonic() + order.timeout_s)
    threads = [threading.Thread(target=_Doorman(meeting, listener).run, daemon=True)]
    threads += [threading.Thread(target=_dial, args=(meeting, peer), daemon=True) for peer in range(order.rank)]
    for thread in threads:
        thread.start()
    peers: dict[int, socket.socket] = {}
    try:
        _gather(meeting, peers)
    except TransportError:
        _hang_up(peers.values())
        raise
    finally:
        meeting.stop.set()
        for thread in threads:
            thread.join(HELLO_S)
        _drop_latecomers(meeting)
    return peers


def _gather(meeting: _Meeting, peers: dict[int, socket.socket]) -> None:
    missing = set(range(len(meeting.order.addresses))) - {meeting.order.rank}
    while missing:
        try:
            peer, result = meeting.met.get(timeout=meeting.left_s())
        except queue.Empty:
            raise _too_late(meeting.order, missing) from None
        if isinstance(result, TransportError):
            raise result
        if peer in peers:
            peers[peer].close()  # it dialled again, so it has given up the first connection
        peers[peer] = result
        missing.discard(peer)


def _too_late(order: MeshOrder, missing: set[int]) -> TransportError:
    who = ", ".join(f"{peer} ({order.addresses[peer][0]}:{order.addresses[peer][1]})" for peer in sorted(missing))
    return TransportError(
        f"rank {order.rank} waited {order.timeout_s:g} s and did not meet rank {who}. Check that they run, that their "
        f"addresses can be reached from here and that all have the same token, or wait longer."
    )


def _drop_latecomers(meeting: _Meeting) -> None:
    while not meeting.met.empty():
        _, result = meeting.met.get()
        if isinstance(result, socket.socket):
            result.close()


def _hang_up(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        connection.close()


def _dial(meeting: _Meeting, peer: int) -> None:
    """Dial until the peer answers; it may not have started to listen yet."""
    refusals = 0
    while not meeting.stop.is_set() and time.monotonic() < meeting.deadline_s:
        try:
            meeting.met.put((peer, _call(meeting, peer)))
            return
        except (EOFError, ConnectionResetError, BrokenPipeError):
            refusals += 1
        except TransportError as error:
            meeting.met.put((peer, error))
            return
        except OSError:
            pass  # nobody listens there yet: the deadline tells
        if refusals == MAX_REFUSALS:
            meeting.met.put((peer, _refused(meeting.order, peer, "it hung up, probably because it has another token")))
            return
        meeting.stop.wait(RETRY_S)


def _call(meeting: _Meeting, peer: int) -> socket.socket:
    order = meeting.order
    connection = socket.create_connection(order.addresses[peer], timeout=meeting.left_s())
    try:
        connection.sendall(pack_hello(Hello(order.rank, peer), order.token, "dial"))
        answer = _read_exactly(connection, HELLO_BYTES)
        if unpack_hello(answer, order.token, "answer") != Hello(peer, order.rank):
            raise TransportError("another rank answers there")
    except TransportError as error:
        connection.close()
        raise _refused(order, peer, str(error)) from None
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)
    return connection


def _refused(order: MeshOrder, peer: int, why: str) -> TransportError:
    host, port = order.addresses[peer]
    return TransportError(
        f"rank {order.rank} cannot join rank {peer} at {host}:{port}: {why}. "
        f"Start all ranks of a job from one command, so that they share its token and addresses."
    )


def _read_exactly(connection: socket.socket, num_bytes: int) -> bytes:
    data = b""
    while len(data) < num_bytes:
        piece = connection.recv(num_bytes - len(data))
        if not piece:
            raise EOFError("the connection was closed")
        data += piece
    return data


@dataclass(slots=True)
class _Stranger:
    """A connection that has not said yet who it is."""

    connection: socket.socket
    deadline_s: float
    heard: bytearray = field(default_factory=bytearray)


class _Doorman:
    """Accepts the higher ranks and nobody else."""

    def __init__(self, meeting: _Meeting, listener: Listener) -> None:
        self._meeting = meeting
        self._listener = listener.socket
        self._expected = set(range(meeting.order.rank + 1, len(meeting.order.addresses)))
        self._strangers: dict[int, _Stranger] = {}
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Accept until all are there or the meeting is over."""
        with self._selector:
            self._selector.register(self._listener, selectors.EVENT_READ)
            while self._expected and not self._meeting.stop.is_set():
                for key, _ in self._selector.select(RETRY_S):
                    self._attend(key.fd)
                self._drop_slow()
        _hang_up([stranger.connection for stranger in self._strangers.values()])

    def _attend(self, descriptor: int) -> None:
        if descriptor == self._listener.fileno():
            self._accept()
        elif descriptor in self._strangers:
            self._hear(descriptor)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # it hung up before we got to it
        connection.setblocking(False)
        if len(self._strangers) >= MAX_UNPROVEN:
            self._drop(next(iter(self._strangers)))
        self._strangers[connection.fileno()] = _Stranger(connection, time.monotonic() + HELLO_S)
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, descriptor: int) -> None:
        stranger = self._strangers[descriptor]
        try:
            piece = stranger.connection.recv(HELLO_BYTES - len(stranger.heard))
        except OSError:
            piece = b""
        stranger.heard += piece
        if not piece:
            self._drop(descriptor)
        elif len(stranger.heard) == HELLO_BYTES:
            self._judge(descriptor, stranger)

    def _judge(self, descriptor: int, stranger: _Stranger) -> None:
        order = self._meeting.order
        try:
            hello = unpack_hello(stranger.heard, order.token, "dial")
            if hello.target != order.rank or not order.rank < hello.source < len(order.addresses):
                raise TransportError("it looks for another rank")
            stranger.connection.send(pack_hello(Hello(order.rank, hello.source), order.token, "answer"))
        except (TransportError, OSError):
            self._drop(descriptor)
            return
        self._welcome(descriptor, hello.source)

    def _welcome(self, descriptor: int, peer: int) -> None:
        connection = self._strangers.pop(descriptor).connection
        self._selector.unregister(connection)
        connection.setblocking(True)
        self._expected.discard(peer)
        self._meeting.met.put((peer, connection))

    def _drop_slow(self) -> None:
        now_s = time.monotonic()
        for descriptor in [fd for fd, stranger in self._strangers.items() if stranger.deadline_s < now_s]:
            self._drop(descriptor)

    def _drop(self, descriptor: int) -> None:
        connection = self._strangers.pop(descriptor).connection
        self._selector.unregister(connection)
        connection.close()
