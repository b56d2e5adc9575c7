"""Carries a link over a connected socket, from a thread that serves those of all peers."""

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nfold.transport.connecting.keepalive import enable_keepalive, silent_s
from nfold.transport.links.link import Link
from nfold.transport.links.loop import READ, WRITE, Loop

if TYPE_CHECKING:
    from nfold.transport.links.framing import Frame

LEAST_UNSENT_BYTES, MOST_UNSENT_BYTES = 16 << 10, 256 << 10
"""That the kernel takes beyond what is on its way: what it has taken is sent in its own order, and not in ours."""
READ_AHEAD_BYTES = 16 << 10
"""Read at once when less is wanted, so that a small frame costs one system call instead of two."""
MOST_AT_ONCE_BYTES = 64 << 10
_BUFFER_PER_WAKE = 8
"""The kernel offers the sender half of its buffer, and less when segments are small: what is waited for must fit."""
LAST_WAIT_S = 0.5
"""How long the loop may take to notice that a socket is broken."""


class SocketCarrier:
    """One socket. All but what `Carrier` promises to other threads happens in the thread of its loop."""

    def __init__(self, loop: Loop, connection: socket.socket, link: Link) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MOST_UNSENT_BYTES)
        enable_keepalive(connection)
        self._loop, self._socket, self._link = loop, connection, link
        self._incoming = link.incoming()
        self._rest = next(self._incoming)
        self._ahead = memoryview(bytearray(READ_AHEAD_BYTES))
        self._wakes_at = self._at_once = 1
        self._frame: Frame | None = None
        self._reading = True
        self._watched = 0
        self._is_called = False
        self._over = threading.Event()

    def start(self) -> None:
        """Begin to read."""
        self._loop.call(self._watch)

    def try_write(self, parts: Sequence[memoryview]) -> int:
        """Write what the kernel takes without waiting."""
        try:
            return self._socket.sendmsg(parts)
        except BlockingIOError:
            return 0

    def wake(self) -> None:
        """Let the loop write."""
        if not self._is_called:
            self._is_called = True
            self._loop.call(self._called)

    def limit_unsent(self, num_bytes: int | None) -> None:
        """Let the kernel hold about so many bytes that it has not sent, within our bounds; None: the upper one."""
        limit = MOST_UNSENT_BYTES if num_bytes is None else min(MOST_UNSENT_BYTES, max(LEAST_UNSENT_BYTES, num_bytes))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limit)

    def silent_s(self) -> float:
        """Return for how long the peer's kernel has said nothing, as `keepalive.silent_s` reads it."""
        return silent_s(self._socket)

    def shutdown(self) -> None:
        """Break the connection; what the kernel has taken still goes out."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self, deadline_s: float) -> None:
        """Wait for the last words until `deadline_s`, on time.monotonic(), then close the socket."""
        waits = not self._loop.is_current
        if waits:
            self._over.wait(max(0.0, deadline_s - time.monotonic()))
        self.shutdown()
        if waits:
            self._over.wait(LAST_WAIT_S)
        self._loop.call(self._release)

    # In the loop's thread

    def divert(self) -> None:
        """Let bytes of a message that was thrown away go elsewhere."""
        if self._link.brings_forgotten:
            self._rest = memoryview(bytearray(len(self._rest)))

    def _called(self) -> None:
        self._is_called = False  # first: what is queued from now on asks for another call
        self._serve(0 if self._watched & WRITE else WRITE)

    def _serve(self, events: int) -> None:
        """Read and write what can be."""
        try:
            if events & READ:
                self._read()
            if events & WRITE:
                self._write()
        except Exception as error:  # a broken connection, or a callback that raised: never a silent end
            self._link.fail(error)
            self._give_up()
        self._watch()

    def _watch(self) -> None:
        events = (READ if self._reading else 0) | (WRITE if self._has_to_write() else 0)
        if events != self._watched:
            self._loop.watch(self._socket, events, self._watched, self._serve)
            self._watched = events
        if not events and self._link.is_ending:
            self._over.set()

    def _has_to_write(self) -> bool:
        return self._frame is not None

    def _give_up(self) -> None:
        self._reading, self._frame = False, None

    def _release(self) -> None:
        self._give_up()
        self._watch()
        self._socket.close()

    def _write(self) -> None:
        while self._frame is not None or self._take():
            assert self._frame is not None, "taken just now"
            if not self._frame.wrote(self.try_write(self._frame.parts)):
                return
            done, self._frame = self._frame.done, None
            done()

    def _take(self) -> bool:
        self._frame = self._link.take()
        return self._frame is not None

    def _read(self) -> None:
        wants_few = len(self._rest) < READ_AHEAD_BYTES
        more_is_there = not wants_few or self._read_ahead() == READ_AHEAD_BYTES
        if more_is_there and self._reading and len(self._rest) >= READ_AHEAD_BYTES:
            self._filled(self._receive(self._rest))
        self._wake_when_worth_it()

    def _read_ahead(self) -> int:
        start, end = 0, self._receive(self._ahead)
        while start < end and self._reading:
            num_bytes = min(len(self._rest), end - start)
            self._rest[:num_bytes] = self._ahead[start : start + num_bytes]
            start += num_bytes
            self._filled(num_bytes)
        return end

    def _filled(self, num_bytes: int) -> None:
        """Take note of bytes that came; ask the link where the next ones go when that was all."""
        self._rest = self._rest[num_bytes:]
        if not self._rest:
            following = next(self._incoming, None)
            self._reading = following is not None
            self._rest = following or self._rest

    def _wake_when_worth_it(self) -> None:
        """Wake up for many bytes at a time: a slow link would wake us for every segment."""
        wakes_at, awaited_bytes = 1, self._awaited_bytes()
        if awaited_bytes >= READ_AHEAD_BYTES:
            if self._at_once < MOST_AT_ONCE_BYTES:  # the kernel lets a buffer grow
                buffer_bytes = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
                self._at_once = min(MOST_AT_ONCE_BYTES, buffer_bytes // _BUFFER_PER_WAKE)
            wakes_at = min(self._at_once, awaited_bytes)
        if wakes_at != self._wakes_at:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wakes_at)
            self._wakes_at = wakes_at

    def _awaited_bytes(self) -> int:
        """Return how many bytes surely come, unless the connection breaks."""
        return len(self._rest)

    def _receive(self, target: memoryview) -> int:
        try:
            num_bytes = self._socket.recv_into(target)
        except BlockingIOError:  # the kernel has had second thoughts
            return 0
        if num_bytes == 0:
            raise ConnectionError("it closed the connection")
        return num_bytes
