"""Turns an ordered way for bytes into tagged messages to and from one peer. How bytes move is its carrier's business.

        send --> eager? --yes--> try_write          incoming() --> memory to fill: a header, a payload, a header ...
                   |no                                  |
                   v                                    v
                 queue --> take() --> the carrier    Inbox: posted receives

A small message goes out from the thread that sends it, if nothing is ahead of it: one thread hop less. Everything
else is queued for the carrier, samples that move behind all that steps need. What comes in fills posted memory
directly. With a delay, a thread hands over what has arrived that much later, in order, while the carrier goes on.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from nfold.errors import TransportError
from nfold.transport.links.byte_counts import ByteCounts
from nfold.transport.links.delay import DelayLine
from nfold.transport.links.framing import HEADER_BYTES, Frame, Kind, control_frame, data_frame, unpack_header
from nfold.transport.links.inbox import Inbox
from nfold.transport.links.send_queue import SendQueue
from nfold.transport.protocol import Done
from nfold.transport.tags import without_generation

EAGER_BYTES = 128 << 10
"""The longest frame written by the thread that sends it. Copying more would hold up its other work."""


class Carrier(Protocol):
    """Moves the bytes of one link: fills what `Link.incoming` asks for, writes what `Link.take` gives."""

    def start(self) -> None:
        """Begin to read."""
        ...

    def try_write(self, parts: Sequence[memoryview]) -> int:
        """Write what goes without waiting, and return how many bytes that was."""
        ...

    def wake(self) -> None:
        """Hear that frames are queued, or that the link ends. The link's lock is held: call nothing of it."""
        ...

    def limit_unsent(self, num_bytes: int | None) -> None:
        """Limit what may wait in the kernel; see `Transport.limit_unsent`."""
        ...

    def silent_s(self) -> float:
        """Return for how long the peer's machine has given no sign of life; 0 where that cannot be told."""
        ...

    def divert(self) -> None:
        """Let bytes go elsewhere if `Link.brings_forgotten`; from the thread that reads."""
        ...

    def shutdown(self) -> None:
        """Break the way and wake who waits in it, as far as that is possible."""
        ...

    def close(self, deadline_s: float) -> None:
        """Wait until all is written and the peer has said its last word; let go of everything.

        Args:
            deadline_s: when to wait no longer, on time.monotonic().
        """
        ...


class Link(ByteCounts):
    """The `Way` to one peer over a carrier."""

    def __init__(
        self,
        peer: int,
        carry: Callable[["Link"], Carrier],
        inbox: Inbox,
        on_lost: Callable[[int, str], None],
        delay_s: float = 0.0,
    ) -> None:
        """Args:
        peer: a member.
        carry: makes what moves the bytes.
        inbox: for what comes.
        on_lost: is told once, with the peer and why.
        delay_s: how much later to deliver what the peer sent.
        """
        super().__init__()
        self._peer = peer
        self._inbox = inbox
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._queue = SendQueue()
        self._writing = False
        self._closing = False
        self._ending = False
        self._departed = False
        self._lost = False
        self._arriving: int | None = None
        """The tag of the message whose bytes come now."""
        self._late = DelayLine(delay_s, f"nfold-late-{peer}", self.fail) if delay_s > 0 else None
        self._carrier = carry(self)
        self._carrier.start()

    def send(self, tag: int, data: memoryview, done: Done) -> None:
        """Send a message. `done` may be called before this returns.

        Raises:
            TransportError: this side has closed the link. That the peer is gone raises nothing: `on_lost` is told.
        """
        with self._lock:
            if self._closing:
                raise TransportError(f"tag {without_generation(tag)} cannot be sent: the connection is closed")
            self._count_sent(tag, len(data))
            departed = self._departed
        if departed:
            named = f"{len(data)} bytes with tag {without_generation(tag)}"
            self._lose(f"it said goodbye before {named} could be sent to it")
        else:
            self._submit(data_frame(tag, data, done))

    def receive(self, tag: int, into: memoryview, done: Done) -> None:
        """Post a receive. `done` is called before this returns if the message is here already.

        Raises:
            TransportError: this side has closed the link. That the peer is gone raises nothing: `on_lost` is told.
            InternalError: a receive with this tag waits already.
        """
        if self._closing:
            raise TransportError(f"tag {without_generation(tag)} cannot be received: the connection is closed")
        try:
            self._inbox.post(tag, into, done)
        except TransportError as error:
            self._lose(str(error))

    def limit_unsent(self, num_bytes: int | None) -> None:
        """Limit what may wait in the kernel on the way to the peer; of a lost one nothing is asked."""
        with contextlib.suppress(OSError):  # lost just now: that is told on its own
            self._carrier.limit_unsent(num_bytes)

    def silent_s(self) -> float:
        """Return for how long the peer's machine has given no sign of life; 0 once the conversation is over."""
        with self._lock, contextlib.suppress(OSError):  # lost just now: that is told on its own
            if not (self._closing or self._departed or self._lost):
                return self._carrier.silent_s()
        return 0.0

    def forget_before(self, generation: int) -> None:
        """Throw away all messages of earlier generations. What is half written goes out, and is not read.

        What is half read still goes to the memory of its receive, until `divert`.
        """
        with self._lock:
            self._queue.forget_before(generation)
        self._inbox.forget_before(generation)

    def divert(self) -> None:
        """Let the rest of a message that was thrown away go to memory that nobody uses; from the carrier's thread."""
        self._carrier.divert()

    # For the carrier

    def incoming(self) -> Iterator[memoryview]:
        """Yield memory that the next bytes are to fill, one piece after the other, until the peer's last word.

        Raises:
            TransportError: what came is no frame, or a message that nobody can take.
        """
        buffer = memoryview(bytearray(HEADER_BYTES))
        while True:
            yield buffer
            header = unpack_header(buffer)
            if header.kind is not Kind.DATA:
                self._deliver(partial(self._hear_last_word, header.kind))
                return
            arrival = self._inbox.begin(header.tag, header.length)
            if header.length:
                self._arriving = header.tag
                yield arrival.buffer
                self._arriving = None
            self._count_received(header.tag, header.length)
            self._deliver(partial(self._inbox.finish, arrival))

    @property
    def brings_forgotten(self) -> bool:
        """Whether the bytes that come now are of a message that was thrown away."""
        return self._arriving is not None and self._inbox.is_stale(self._arriving)

    def take(self) -> Frame | None:
        """Return the frame to write next, when the one before has gone; None: none until the next `wake`."""
        with self._lock:
            self._writing = bool(self._queue)
            return self._queue.popleft() if self._writing else None

    @property
    def is_ending(self) -> bool:
        """Whether no frame will be queued any more."""
        return self._ending or self._lost

    def fail(self, error: Exception) -> None:
        """Give the peer up for an error: a broken way, or a callback that raised."""
        is_told = isinstance(error, TransportError | OSError)
        self._lose(str(error) if is_told else f"{type(error).__name__}: {error}")

    # Ending

    def begin_close(self, last_word: Kind) -> None:
        """Say goodbye behind all that is queued, or give up what is queued and say so."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            if last_word is Kind.ABORT:
                self._queue.clear()
            silent = self._lost or self._departed
        if not silent:
            self._submit(control_frame(last_word))
        with self._lock:
            self._ending = True
            self._carrier.wake()

    def finish_close(self, deadline_s: float) -> None:
        """Wait for the peer's answer until `deadline_s`, on time.monotonic(), then let go of the way to it."""
        self._carrier.close(deadline_s)
        if self._late is not None:
            self._late.close()

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
        with self._lock:
            if self._lost:
                return False
            idle = not (self._queue or self._writing)
            if idle and frame.num_bytes <= EAGER_BYTES and frame.wrote(self._carrier.try_write(frame.parts)):
                return True
            self._queue.append(frame)
            if not self._writing:
                self._carrier.wake()
            return False

    def _deliver(self, act: Done) -> None:
        if self._late is None:
            act()
        else:
            self._late.put(act)

    def _hear_last_word(self, kind: Kind) -> None:
        """Answer a peer that leaves. It is lost only if it gave up, or if something still waits for it."""
        with self._lock:
            self._departed = True
            closing = self._closing
        if closing:
            return
        self._write_now(control_frame(Kind.ANSWER))
        num_waiting = self._inbox.depart()
        if kind is not Kind.GOODBYE:
            self._on_lost(self._peer, "it gave up")
        elif num_waiting:
            self._on_lost(self._peer, f"it said goodbye while {num_waiting} receives waited for it")

    def _lose(self, why: str) -> None:
        with self._lock:
            if self._lost:
                return
            self._lost = True
            self._queue.clear()
            self._carrier.wake()
        if self._late is not None:
            self._late.stop()
        self._carrier.shutdown()
        self._on_lost(self._peer, why)
