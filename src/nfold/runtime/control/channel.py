"""Control messages between the coordinator and a rank: one JSON object, and bytes where tensors travel along.

    magic  json length  blob length   json  blob
    4 s    u32          u64

Before that both sides prove that they know the job's token (`transport/connecting/token_proof.py`); a connection that
does not is closed before anything else is read.
"""

import contextlib
import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from nfold.errors import RunError, TransportError
from nfold.transport.connecting.encryption import secured
from nfold.transport.connecting.keepalive import enable_keepalive
from nfold.transport.connecting.token_proof import (
    AGENT,
    CHALLENGE_BYTES,
    COORDINATOR,
    HELLO_BYTES,
    Hello,
    new_nonce,
    pack_challenge,
    pack_hello,
    unpack_challenge,
    unpack_hello,
)

Message = dict[str, Any]

_HEADER = struct.Struct("!4sIQ")
_MAGIC = b"nfC1"
_MAX_JSON_BYTES = 1 << 30
_MAX_BLOB_BYTES = 1 << 40
MOST_QUEUED_BYTES = 4 << 20
"""Of files between threads of one process: who sends more waits, as with a socket, until the other side takes some."""
ALIVE: Message = {"is": "alive"}
"""What a rank says when it has nothing else to say."""
PIECE = "piece"
"""What a rank's message is with the next bytes of a file, before the reply that the file goes with."""
NOT_OURS = "the control connection carries something that is not nfold's protocol"


class ChannelClosed(RunError):
    """The other side has closed the channel, or its process has ended."""


class ControlChannel(Protocol):
    """One end of a channel between the coordinator and a rank."""

    def send(self, message: Message, blob: bytes | memoryview = b"") -> None:
        """Send a message and its bytes.

        Raises:
            ChannelClosed: the other side is gone.
        """
        ...

    def receive(self) -> tuple[Message, bytes]:
        """Wait for a message; return it and its bytes.

        Raises:
            ChannelClosed: there will be none.
        """
        ...

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Say for a block that nobody receives, so that silence of the other side means nothing."""
        ...

    @property
    def far_host(self) -> str:
        """The address that the other side dials from, as it is seen here; empty: it has none."""
        ...

    def close(self) -> None:
        """Close the channel; a `receive` under way raises ChannelClosed on both sides."""
        ...


class SocketChannel:
    """A channel over a connected socket."""

    def __init__(self, connection: socket.socket, clock: Callable[[], float] = time.monotonic) -> None:
        self._socket, self._clock = connection, clock
        self._heard_s, self._is_busy = clock(), False
        self._sending = threading.Lock()
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_keepalive(connection)

    @property
    def heard_s(self) -> float:
        """When bytes last came, also within a message; the time now, while nobody receives."""
        return self._clock() if self._is_busy else self._heard_s

    @property
    def local_host(self) -> str:
        """The address at which the other side reaches this one."""
        return str(self._socket.getsockname()[0])

    @property
    def far_host(self) -> str:
        """The address that the other side dials from, as it is seen here; empty: it has none."""
        with contextlib.suppress(OSError):  # it has hung up
            name = self._socket.getpeername()
            return str(name[0]) if isinstance(name, tuple) else ""
        return ""

    def send(self, message: Message, blob: bytes | memoryview = b"") -> None:
        """Send a message and its bytes.

        Raises:
            ChannelClosed: the other side is gone.
        """
        text = json.dumps(message).encode()
        try:
            with self._sending:
                self._socket.sendall(_HEADER.pack(_MAGIC, len(text), len(blob)) + text)
                if len(blob):
                    self._socket.sendall(blob)
        except OSError as error:
            raise ChannelClosed(f"the control connection broke: {error}") from error

    def receive(self) -> tuple[Message, bytes]:
        """Wait for a message; return it and its bytes.

        Raises:
            ChannelClosed: there will be none.
        """
        magic, text_bytes, blob_bytes = _HEADER.unpack(self._read(_HEADER.size))
        if magic != _MAGIC or text_bytes > _MAX_JSON_BYTES or blob_bytes > _MAX_BLOB_BYTES:
            raise ChannelClosed(NOT_OURS)
        message = _parse(self._read(text_bytes))
        return message, self._read(blob_bytes) if blob_bytes else b""

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Say for a block that what has come is being dealt with; what comes meanwhile is received later."""
        self._is_busy = True
        try:
            yield
        finally:
            self._hear()  # first, so that nobody sees an older time in between
            self._is_busy = False

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):  # already gone: closing is all that is left to do
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, num_bytes: int) -> bytes:
        return _read(self._socket, num_bytes, self._hear)

    def _hear(self) -> None:
        self._heard_s = self._clock()


def connect(host: str, port: int, token: str, member: int, timeout_s: float = 30.0) -> SocketChannel:
    """Dial the coordinator; each side proves to the other that it knows the token.

    Args:
        host: of the coordinator, or the path of its Unix socket.
        port: that it listens on.
        token: of the job.
        member: that dials, or AGENT.
        timeout_s: for each answer.

    Raises:
        ChannelClosed: nobody answers there, or somebody else.
    """
    try:
        connection = secured(_dial(host, port, timeout_s), token, accepts=False)
    except OSError as error:
        raise ChannelClosed(f"{_name(member)} cannot reach the coordinator at {host}:{port}: {error}") from error
    try:
        challenge = unpack_challenge(_read(connection, CHALLENGE_BYTES))
        hello = Hello(member, COORDINATOR, new_nonce())
        connection.sendall(pack_hello(hello, token, "report", challenge))
        unpack_hello(_read_welcome(connection), token, "welcome", hello.nonce)
    except (OSError, ChannelClosed, TransportError) as error:
        connection.close()
        raise ChannelClosed(f"{_name(member)} was not let in by the coordinator at {host}:{port}: {error}") from error
    connection.settimeout(None)
    return SocketChannel(connection)


def _read_welcome(connection: socket.socket) -> bytes:
    try:
        return _read(connection, HELLO_BYTES)
    except ChannelClosed as error:
        raise ChannelClosed("it hung up, probably because it has another token") from error


def _name(member: int) -> str:
    return "the agent" if member == AGENT else f"rank {member}"


def is_path(host: str) -> bool:
    """Whether a host is the path of a Unix socket, as for ranks in other network namespaces of this machine."""
    return host.startswith("/")


def greet(connection: socket.socket, token: str, timeout_s: float) -> int | None:
    """Check that a newcomer knows the job's token.

    Returns:
        its number, or AGENT; None: it does not know the token, or does not say so within `timeout_s`.
    """
    connection.settimeout(timeout_s)
    nonce = new_nonce()
    try:
        connection.sendall(pack_challenge(nonce))
        hello = unpack_hello(_read(connection, HELLO_BYTES), token, "report", nonce)
        connection.sendall(pack_hello(Hello(COORDINATOR, hello.source, nonce), token, "welcome", hello.nonce))
        connection.settimeout(None)
    except (OSError, ChannelClosed, TransportError):
        return None
    return hello.source


def _dial(host: str, port: int, timeout_s: float) -> socket.socket:
    if not is_path(host):
        return socket.create_connection((host, port), timeout=timeout_s)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(host)
    except OSError:
        connection.close()
        raise
    return connection


def _parse(text: bytes) -> Message:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ChannelClosed(NOT_OURS) from error
    if not isinstance(message, dict):
        raise ChannelClosed(NOT_OURS)
    return message


def _read(connection: socket.socket, num_bytes: int, hear: Callable[[], None] = lambda: None) -> bytes:
    try:
        data = bytearray(num_bytes)
    except MemoryError as error:
        raise ChannelClosed(f"a control message of {num_bytes / 2**30:.1f} GiB does not fit in memory") from error
    view, position = memoryview(data), 0
    while position < num_bytes:
        try:
            count = connection.recv_into(view[position:])
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosed(f"the control connection broke: {error}") from error
        if count == 0:
            raise ChannelClosed("the control connection was closed")
        hear()
        position += count
    return bytes(data)


class _Queue:
    """What one thread has sent and another has not taken yet."""

    def __init__(self) -> None:
        self._items: deque[tuple[Message, bytes]] = deque()
        self._changed = threading.Condition()
        self._num_bytes = 0
        self._is_closed = False

    def put(self, message: Message, blob: bytes | memoryview) -> None:
        """Add a message, once there is room for it; one that is larger than that goes alone."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not self._num_bytes or self._has_room(len(blob)))
            if self._is_closed:
                raise ChannelClosed("the control connection was closed")
            self._items.append((message, bytes(blob)))
            self._num_bytes += len(blob)
            self._changed.notify_all()

    def get(self) -> tuple[Message, bytes]:
        """Take the oldest message; of a closed queue, what is left of them."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._items)
            if not self._items:
                raise ChannelClosed("the control connection was closed")
            message, blob = self._items.popleft()
            self._num_bytes -= len(blob)
            self._changed.notify_all()
            return message, blob

    def close(self) -> None:
        """Wake everybody."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_room(self, num_bytes: int) -> bool:
        return self._num_bytes + num_bytes <= MOST_QUEUED_BYTES


class QueueChannel:
    """A channel between threads of one process; `pair` makes both sides."""

    def __init__(self, inbox: _Queue, outbox: _Queue) -> None:
        self._inbox, self._outbox = inbox, outbox

    @classmethod
    def pair(cls) -> "tuple[QueueChannel, QueueChannel]":
        """Return the two ends of a new channel."""
        one, other = _Queue(), _Queue()
        return cls(one, other), cls(other, one)

    def send(self, message: Message, blob: bytes | memoryview = b"") -> None:
        """Send a message; it goes through JSON, so that threads and processes see the same."""
        self._outbox.put(json.loads(json.dumps(message)), blob)

    def receive(self) -> tuple[Message, bytes]:
        """Wait for a message."""
        return self._inbox.get()

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: nobody asks when a thread was last heard."""
        return contextlib.nullcontext()

    @property
    def far_host(self) -> str:
        """Nothing: threads have no address."""
        return ""

    def close(self) -> None:
        """Close the channel on both sides."""
        self._outbox.close()
        self._inbox.close()
