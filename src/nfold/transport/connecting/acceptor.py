"""Accepts the connections of known members and drops all others, without waiting for any single one.

The token is checked in `token_proof.py`.
"""

import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from nfold.errors import TransportError
from nfold.transport.connecting.encryption import secured
from nfold.transport.connecting.listener import Listener
from nfold.transport.connecting.token_proof import (
    HELLO_BYTES,
    Hello,
    new_nonce,
    pack_challenge,
    pack_hello,
    unpack_hello,
)

HELLO_S = 2.0
"""How long a new connection may take to say who it is."""
MAX_UNPROVEN = 128
"""Connections that have not said yet who they are; the oldest is dropped for a new one."""
LOOK_UP_S = 0.05


@dataclass(slots=True)
class UnprovedPeer:
    """A connection that has not said yet who it is."""

    connection: socket.socket
    deadline_s: float
    """When it is dropped, on time.monotonic()."""
    nonce: bytes = field(default_factory=new_nonce)
    """What its proof must cover."""
    is_challenged: bool = False
    """Whether it was told the nonce."""
    heard: bytearray = field(default_factory=bytearray)
    """Of its hello so far."""

    def hear(self) -> None:
        """Challenge it, then take in its hello.

        Raises:
            BlockingIOError: not all of it has come.
            TransportError: it does not encrypt, or shows another certificate.
            OSError: it hung up.
        """
        if not self.is_challenged:
            self.connection.send(pack_challenge(self.nonce))
            self.is_challenged = True
        while len(self.heard) < HELLO_BYTES:
            piece = self.connection.recv(HELLO_BYTES - len(self.heard))
            if not piece:
                raise ConnectionResetError("it hung up")
            self.heard += piece


class Acceptor:
    """Accepts the members that are expected and nobody else."""

    def __init__(
        self, member: int, expected: set[int], token: str, welcome: Callable[[int, socket.socket], None]
    ) -> None:
        """Args:
        member: this process.
        expected: the members that may come, each once.
        token: the job's secret, which they prove that they have.
        welcome: takes a member and its proven connection, which blocks, from the thread that runs this.
        """
        self._member = member
        self._expected = set(expected)
        self._token = token
        self._guest_came = welcome
        self._unproved: dict[int, UnprovedPeer] = {}
        self._selector = selectors.DefaultSelector()

    def run(self, listener: Listener, stop: threading.Event) -> None:
        """Accept until all are there or another thread sets `stop`; who is unproven then is dropped.

        What a stranger does raises nothing: it is dropped, at the latest after HELLO_S.
        """
        with self._selector:
            self._selector.register(listener.socket, selectors.EVENT_READ)
            while self._expected and not stop.is_set():
                for key, _ in self._selector.select(LOOK_UP_S):
                    self._attend(key.fd, listener.socket)
                self._drop_slow()
            for descriptor in list(self._unproved):
                self._drop(descriptor)

    def _attend(self, descriptor: int, listening: socket.socket) -> None:
        if descriptor == listening.fileno():
            self._accept(listening)
        elif descriptor in self._unproved:
            self._hear(descriptor)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except OSError:
            return  # it hung up before we got to it
        connection = secured(accepted, self._token, accepts=True)
        connection.setblocking(False)
        if len(self._unproved) >= MAX_UNPROVEN:
            self._drop(next(iter(self._unproved)))
        self._unproved[connection.fileno()] = UnprovedPeer(connection, time.monotonic() + HELLO_S)
        self._selector.register(connection, selectors.EVENT_READ)
        self._hear(connection.fileno())

    def _hear(self, descriptor: int) -> None:
        peer = self._unproved[descriptor]
        try:
            peer.hear()
        except BlockingIOError:
            return  # more is to come
        except (TransportError, OSError):
            self._drop(descriptor)
        else:
            self._judge(descriptor, peer)

    def _judge(self, descriptor: int, peer: UnprovedPeer) -> None:
        try:
            hello = unpack_hello(peer.heard, self._token, "dial", peer.nonce)
            if hello.target != self._member or hello.source not in self._expected:
                raise TransportError("it looks for another member, or is not expected")
            answer = Hello(self._member, hello.source, peer.nonce)
            peer.connection.send(pack_hello(answer, self._token, "answer", hello.nonce))
        except (TransportError, OSError):
            self._drop(descriptor)
            return
        self._welcome(descriptor, hello.source)

    def _welcome(self, descriptor: int, peer: int) -> None:
        connection = self._unproved.pop(descriptor).connection
        self._selector.unregister(connection)
        connection.setblocking(True)
        self._expected.discard(peer)
        self._guest_came(peer, connection)

    def _drop_slow(self) -> None:
        now_s = time.monotonic()
        for descriptor in [fd for fd, peer in self._unproved.items() if peer.deadline_s < now_s]:
            self._drop(descriptor)

    def _drop(self, descriptor: int) -> None:
        connection = self._unproved.pop(descriptor).connection
        self._selector.unregister(connection)
        connection.close()
