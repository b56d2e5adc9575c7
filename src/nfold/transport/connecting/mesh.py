"""Turns a listening socket and some addresses into one proven connection per peer.

A member dials every one before it and accepts every one behind it. Strangers are dropped and do not hold up the others:
one thread listens to all unproven connections at once, one dials each member before us.
"""

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from nfold.errors import TransportError
from nfold.transport.connecting.acceptor import HELLO_S, LOOK_UP_S, Acceptor
from nfold.transport.connecting.encryption import secured
from nfold.transport.connecting.listener import Address, Listener
from nfold.transport.connecting.token_proof import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    Hello,
    new_nonce,
    pack_hello,
    unpack_challenge,
    unpack_hello,
)

__all__ = ["Address", "Listener", "MeshOrder", "form_mesh"]

RETRY_S = 0.05
MAX_REFUSALS = 3
"""How often a peer may hang up on our hello before we believe that it means it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshOrder:
    """What one member needs to know to find its peers."""

    member: int
    addresses: Mapping[int, Address]
    """Of every peer that is to be met."""
    dialled: Set[int]
    """Those of them that stand before this member; the others dial it."""
    token: str
    """The job's secret."""
    timeout_s: float
    """For all of them together."""


Met = Callable[[int, socket.socket], None]
"""Is given the proven connection to a peer."""


@dataclass(slots=True)
class _Meeting:
    """What the threads of one mesh share."""

    order: MeshOrder
    deadline_s: float
    found: "queue.Queue[tuple[int, socket.socket | TransportError]]" = field(default_factory=queue.Queue)
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    unheard: set[socket.socket] = field(default_factory=set)
    """Connections on which the peer has said nothing yet."""
    is_over: bool = False

    def left_s(self) -> float:
        """Return the seconds until the deadline, at least a little."""
        return max(1e-3, self.deadline_s - time.monotonic())

    @contextlib.contextmanager
    def hearing(self, connection: socket.socket) -> Iterator[None]:
        """Wait for a peer's first words, unless the meeting ends before: later ones would be for nobody.

        Raises:
            EOFError: it has ended.
        """
        with self.lock:
            if self.stop.is_set():
                raise EOFError("the meeting has ended")
            self.unheard.add(connection)
        try:
            yield
        finally:
            with self.lock:
                self.unheard.discard(connection)

    def end(self) -> None:
        """Let nobody begin to dial, or wait for a peer's first words."""
        with self.lock:
            self.stop.set()
            for connection in self.unheard:
                with contextlib.suppress(OSError):  # the peer has hung up
                    connection.shutdown(socket.SHUT_RDWR)

    def put(self, peer: int, connection: socket.socket) -> None:
        """Hand over a proven connection, or close it: nobody takes any more."""
        with self.lock:
            if self.is_over:
                connection.close()
            else:
                self.found.put((peer, connection))

    def take_rest(self, met: Met) -> None:
        """Hand over the connections that nobody has taken yet, for the last time."""
        with self.lock:
            self.is_over = True
        with contextlib.suppress(queue.Empty):
            while True:
                peer, result = self.found.get_nowait()
                if isinstance(result, socket.socket):
                    met(peer, result)


def form_mesh(listener: Listener, order: MeshOrder, met: Met, stop: threading.Event) -> None:
    """Connect to every peer.

    Args:
        listener: where those behind us reach us.
        order: whom to meet.
        met: takes each connection as it is proven, from this thread. What was met stays so if others are not.
        stop: ends the meeting when another thread sets it: somebody who is missing will not come.

    Raises:
        TransportError: some peer refused us or did not come in time, or the meeting was ended.
    """
    meeting = _Meeting(order, time.monotonic() + order.timeout_s)
    expected = order.addresses.keys() - order.dialled
    acceptor = Acceptor(order.member, expected, order.token, meeting.put)
    threads = [threading.Thread(target=acceptor.run, args=(listener, meeting.stop), daemon=True)]
    dialled = order.addresses.keys() & order.dialled
    threads += [threading.Thread(target=_dial, args=(meeting, peer), daemon=True) for peer in dialled]
    for thread in threads:
        thread.start()
    try:
        _gather(meeting, met, stop)
    finally:
        meeting.end()
        for thread in threads:
            thread.join(HELLO_S)
        meeting.take_rest(met)


def _gather(meeting: _Meeting, met: Met, stop: threading.Event) -> None:
    missing = set(meeting.order.addresses)
    while missing:
        if stop.is_set():
            raise TransportError("the generation was ended while its members met")
        try:
            peer, result = meeting.found.get(timeout=min(LOOK_UP_S, meeting.left_s()))
        except queue.Empty:
            if time.monotonic() < meeting.deadline_s:
                continue
            raise _too_late(meeting.order, missing) from None
        if isinstance(result, TransportError):
            raise result
        met(peer, result)
        missing.discard(peer)


def _too_late(order: MeshOrder, missing: set[int]) -> TransportError:
    who = ", ".join(f"{peer} ({order.addresses[peer][0]}:{order.addresses[peer][1]})" for peer in sorted(missing))
    return TransportError(
        f"member {order.member} waited {order.timeout_s:g} s and did not meet member {who}. Check that they run, that "
        f"their addresses can be reached from here and that all have the same token, or wait longer."
    )


def _dial(meeting: _Meeting, peer: int) -> None:
    """Dial until the peer answers; it may not have started to listen yet."""
    refusals = 0
    while not meeting.stop.is_set() and time.monotonic() < meeting.deadline_s:
        try:
            meeting.put(peer, _call(meeting, peer))
            return
        except (EOFError, ConnectionResetError, BrokenPipeError):
            refusals += 1
        except TransportError as error:
            meeting.found.put((peer, error))
            return
        except OSError:
            pass  # nobody listens there yet: the deadline tells
        if refusals == MAX_REFUSALS:
            meeting.found.put(
                (peer, _refused(meeting.order, peer, "it hung up, probably because it has another token"))
            )
            return
        meeting.stop.wait(RETRY_S)


def _call(meeting: _Meeting, peer: int) -> socket.socket:
    order = meeting.order
    dialled = socket.create_connection(order.addresses[peer], timeout=meeting.left_s())
    connection = secured(dialled, order.token, accepts=False)
    try:
        with meeting.hearing(connection):
            challenge = unpack_challenge(_read_exactly(connection, CHALLENGE_BYTES))
        hello = Hello(order.member, peer, new_nonce())
        connection.sendall(pack_hello(hello, order.token, "dial", challenge))
        answer = unpack_hello(_read_exactly(connection, HELLO_BYTES), order.token, "answer", hello.nonce)
        if (answer.source, answer.target) != (peer, order.member):
            raise TransportError("another member answers there")
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
        f"member {order.member} cannot join member {peer} at {host}:{port}: {why}. "
        f"Start all members of a job from one command, so that they share its token and addresses."
    )


def _read_exactly(connection: socket.socket, num_bytes: int) -> bytes:
    data = b""
    while len(data) < num_bytes:
        piece = connection.recv(num_bytes - len(data))
        if not piece:
            raise EOFError("the connection was closed")
        data += piece
    return data
