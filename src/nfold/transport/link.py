"""Turns one pipe into tagged messages to and from one peer: a reader thread, and a writer thread when one is needed.

A small message goes out from the thread that sends it, if nothing is ahead of it: one thread hop less. Everything
else is queued for the writer. The reader fills posted memory directly. With a delay, a third thread hands over what
has arrived that much later, in order, while the reader goes on.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from nfold.errors import TransportError
from nfold.transport.base import Done
from nfold.transport.delay import DelayLine
from nfold.transport.framing import HEADER_BYTES, Frame, Kind, control_frame, data_frame, unpack_header
from nfold.transport.inbox import Inbox
from nfold.transport.pipe import Pipe

EAGER_BYTES = 128 << 10
"""The longest frame written by the thread that sends it. Copying more would hold up its other work."""
LAST_WAIT_S = 0.5
"""How long a thread of a broken pipe may take to notice."""


class Link:
    """Messages between this rank and one peer."""

    def __init__(
        self, peer: int, pipe: Pipe, inbox: Inbox, on_lost: Callable[[int, str], None], delay_s: float = 0.0
    ) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self._peer = peer
        self._pipe = pipe
        self._inbox = inbox
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._queue: deque[Frame] = deque()
        self._writing = False
        self._closing = False
        self._ending = False
        self._departed = False
        self._lost = False
        self._writer: threading.Thread | None = None
        self._late = DelayLine(delay_s, f"nfold-late-{peer}", self._fail) if delay_s > 0 else None
        self._reader = threading.Thread(target=self._read_all, name=f"nfold-read-{peer}", daemon=True)
        self._reader.start()

    def send(self, tag: int, data: memoryview, done: Done) -> None:
        """Send a message. `done` may be called before this returns."""
        with self._changed:
            if self._closing:
                raise TransportError(f"tag {tag} cannot be sent to rank {self._peer}: this transport is closed")
            self.sent_bytes += len(data)
            departed = self._departed
        if departed:
            self._lose(f"it said goodbye before {len(data)} bytes with tag {tag} could be sent to it")
        else:
            self._submit(data_frame(tag, data, done))

    def receive(self, tag: int, into: memoryview, done: Done) -> None:
        """Post a receive. `done` is called before this returns if the message is here already."""
        if self._closing:
            raise TransportError(f"tag {tag} cannot be received from rank {self._peer}: this transport is closed")
        try:
            self._inbox.post(tag, into, done)
        except TransportError as error:
            self._lose(str(error))

    def silent_s(self) -> float:
        """Return for how long the peer's machine has given no sign of life; 0 once the conversation is over."""
        with self._changed, contextlib.suppress(OSError):  # lost just now: that is told on its own
            if not (self._closing or self._departed or self._lost):
                return self._pipe.silent_s()
        return 0.0

    def begin_close(self, last_word: Kind) -> None:
        """Say goodbye behind all that is queued, or give up what is queued and say so."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            if last_word is Kind.ABORT:
                self._queue.clear()
            silent = self._lost or self._departed
        if not silent:
            self._submit(control_frame(last_word))
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def finish_close(self, deadline_s: float) -> None:
        """Wait for the peer's answer until the deadline, then end the threads and the pipe."""
        self._join(deadline_s)
        self._pipe.shutdown()
        self._join(time.monotonic() + LAST_WAIT_S)
        self._pipe.close()
        if self._late is not None:
            self._late.close()

    def _join(self, deadline_s: float) -> None:
        for thread in (self._writer, self._reader):
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline_s - time.monotonic()))

    def _submit(self, frame: Frame) -> None:
        try:
            if not self._write_now(frame):
                return
        except OSError as error:
            self._lose(str(error))
            return
        frame.done()

    def _write_now(self, frame: Frame) -> bool:
        """Write a frame if it is small and nothing is ahead of it, else queue what is left; return if all is gone."""
        with self._changed:
            if self._lost:
                return False
            idle = not (self._queue or self._writing)
            if idle and frame.num_bytes <= EAGER_BYTES and frame.wrote(self._pipe.try_write(frame.parts)):
                return True
            self._queue.append(frame)
            self._wake_writer()
            return False

    def _wake_writer(self) -> None:
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_all, name=f"nfold-write-{self._peer}", daemon=True)
            self._writer.start()
        self._changed.notify_all()

    def _write_all(self) -> None:
        try:
            while (frame := self._next_frame()) is not None:
                self._pipe.write(frame.parts)
                frame.done()
        except Exception as error:  # a broken pipe, or a callback that raised: never a silent end
            self._lose(_reason(error))

    def _next_frame(self) -> Frame | None:
        with self._changed:
            self._writing = False
            while not (self._queue or self._ending or self._lost):
                self._changed.wait()
            if self._lost or not self._queue:
                return None
            self._writing = True
            return self._queue.popleft()

    def _read_all(self) -> None:
        header = memoryview(bytearray(HEADER_BYTES))
        try:
            while self._read_frame(header):
                pass
        except Exception as error:  # a broken pipe, or a callback that raised: never a silent end
            self._lose(_reason(error))

    def _read_frame(self, buffer: memoryview) -> bool:
        """Read one frame, and return whether more may follow."""
        self._pipe.read_into(buffer)
        header = unpack_header(buffer)
        if header.kind is not Kind.DATA:
            self._deliver(partial(self._hear_last_word, header.kind))
            return False
        arrival = self._inbox.begin(header.tag, header.length)
        if header.length:
            self._pipe.read_into(arrival.buffer)
        self.received_bytes += header.length
        self._deliver(partial(self._inbox.finish, arrival))
        return True

    def _deliver(self, act: Done) -> None:
        if self._late is None:
            act()
        else:
            self._late.put(act)

    def _hear_last_word(self, kind: Kind) -> None:
        """Answer a peer that leaves. It is lost only if it gave up, or if something still waits for it."""
        with self._changed:
            self._departed = True
            if self._closing:
                return
            self._write_now(control_frame(Kind.ANSWER))
        num_waiting = self._inbox.depart()
        if kind is not Kind.GOODBYE:
            self._on_lost(self._peer, "it gave up")
        elif num_waiting:
            self._on_lost(self._peer, f"it said goodbye while {num_waiting} receives waited for it")

    def _lose(self, why: str) -> None:
        with self._changed:
            if self._lost:
                return
            self._lost = True
            self._queue.clear()
            self._changed.notify_all()
        if self._late is not None:
            self._late.stop()
        self._pipe.shutdown()
        self._on_lost(self._peer, why)

    def _fail(self, error: Exception) -> None:
        self._lose(_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, TransportError | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}"
