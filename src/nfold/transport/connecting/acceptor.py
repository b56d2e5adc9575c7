"""Accepts the connections of known members and drops all others, without waiting for any single one."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from nfold.errors import TransportError
from nfold.transport.connecting.handshake import HELLO_BYTES, Hello, new_nonce, pack_challenge, pack_hello, unpack_hello
from nfold.transport.connecting.listener import Listener

HELLO_S = 2.0
"""How long a new connection may take to say who it is."""
MAX_UNPROVEN = 128
"""Connections that have not said yet who they are; the oldest is dropped for a new one."""
LOOK_UP_S = 0.05


@dataclass(slots=True)
class Stranger:
    """A connection that has not said yet who it is."""

    connection: socket.socket
    deadline_s: float
    nonce: bytes = field(default_factory=new_nonce)
    heard: bytearray = field(default_factory=bytearray)


class Acceptor:
    """Accepts the members that are expected and nobody else."""

    def __init__(
        self, member: int, expected: set[int], token: str, welcome: Callable[[int, socket.socket], None]
    ) -> None:
        self._member = member
        self._expected = set(expected)
        self._token = token
        self._guest_came = welcome
        self._strangers: dict[int, Stranger] = {}
        self._selector = selectors.DefaultSelector()

    def run(self, listener: Listener, stop: threading.Event) -> None:
        """Accept until all are there or someone says stop."""
        with self._selector:
            self._selector.register(listener.socket, selectors.EVENT_READ)
            while self._expected and not stop.is_set():
                for key, _ in self._selector.select(LOOK_UP_S):
                    self._attend(key.fd, listener.socket)
                self._drop_slow()
            for descriptor in list(self._strangers):
                self._drop(descriptor)

    def _attend(self, descriptor: int, listening: socket.socket) -> None:
        if descriptor == listening.fileno():
            self._accept(listening)
        elif descriptor in self._strangers:
            self._hear(descriptor)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # it hung up before we got to it
        connection.setblocking(False)
        if len(self._strangers) >= MAX_UNPROVEN:
            self._drop(next(iter(self._strangers)))
        stranger = self._strangers[connection.fileno()] = Stranger(connection, time.monotonic() + HELLO_S)
        self._selector.register(connection, selectors.EVENT_READ)
        with contextlib.suppress(OSError):  # it has hung up: we shall hear of that next
            connection.send(pack_challenge(stranger.nonce))

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

    def _judge(self, descriptor: int, stranger: Stranger) -> None:
        try:
            hello = unpack_hello(stranger.heard, self._token, "dial", stranger.nonce)
            if hello.target != self._member or hello.source not in self._expected:
                raise TransportError("it looks for another member, or is not expected")
            answer = Hello(self._member, hello.source, stranger.nonce)
            stranger.connection.send(pack_hello(answer, self._token, "answer", hello.nonce))
        except (TransportError, OSError):
            self._drop(descriptor)
            return
        self._welcome(descriptor, hello.source)

    def _welcome(self, descriptor: int, peer: int) -> None:
        connection = self._strangers.pop(descriptor).connection
        self._selector.unregister(connection)
        connection.setblocking(True)
        self._expected.discard(peer)
        self._guest_came(peer, connection)

    def _drop_slow(self) -> None:
        now_s = time.monotonic()
        for descriptor in [fd for fd, stranger in self._strangers.items() if stranger.deadline_s < now_s]:
            self._drop(descriptor)

    def _drop(self, descriptor: int) -> None:
        connection = self._strangers.pop(descriptor).connection
        self._selector.unregister(connection)
        connection.close()
