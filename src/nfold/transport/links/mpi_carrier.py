"""Carries a link through MPI. A short frame is one message; of a longer one the header comes first, then its payload.

    sender      | header + payload |        | header |  | payload, in pieces |
    receiver    into memory of our own      the same    into the memory that waits for it

The receiver asks for the next message of a peer once it knows where its bytes go, so nothing is looked for by tags of
MPI, whose numbers may be small: a frame's header names the message.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nfold.transport.links.framing import HEADER_BYTES, Frame
from nfold.transport.links.link import Link
from nfold.transport.links.mpi_loop import MpiLoop, Peer

WITH_HEADER_BYTES = 4000
"""The longest payload that comes in one message with its header: what every MPI sends without asking first."""
PIECE_BYTES = 1 << 30
"""MPI counts the bytes of a message in 31 bits."""
MOST_IN_FLIGHT_BYTES = 256 << 10
"""Given to MPI beyond the frame that is going: it sends in its own order, and not in ours."""
LAST_WAIT_S = 0.5
"""How long the loop may take to let go of a request."""


@dataclass(slots=True)
class _Outgoing:
    """A frame that MPI has, and how many of its messages have not gone yet."""

    frame: Frame
    num_messages: int


class MpiCarrier:
    """One way. All but what `Carrier` promises to other threads happens in the thread of its loop."""

    def __init__(self, loop: MpiLoop, peer: Peer, link: Link, piece_bytes: int = PIECE_BYTES) -> None:
        self._loop, self._peer, self._link, self._piece_bytes = loop, peer, link, piece_bytes
        self._incoming = link.incoming()
        self._rest = next(self._incoming)
        self._first = memoryview(bytearray(HEADER_BYTES + WITH_HEADER_BYTES))
        self._awaited: Any = None
        self._reading = True
        self._has_given_up = False
        self._in_flight_bytes, self._most_in_flight_bytes = 0, MOST_IN_FLIGHT_BYTES
        self._over = threading.Event()

    def start(self) -> None:
        """Begin to read."""
        self._loop.call(self._await_first)

    def try_write(self, parts: Sequence[memoryview]) -> int:
        """Write nothing: the loop alone speaks MPI."""
        return 0

    def wake(self) -> None:
        """Let the loop write."""
        self._loop.call(self._write)

    def limit_unsent(self, num_bytes: int | None) -> None:
        """Give MPI no other frame while it has so many bytes; None: as many as we allow at most."""
        allowed = MOST_IN_FLIGHT_BYTES if num_bytes is None else min(MOST_IN_FLIGHT_BYTES, num_bytes)
        self._most_in_flight_bytes = allowed

    def silent_s(self) -> float:
        """Return 0: MPI does not tell."""
        return 0.0

    def divert(self) -> None:
        """Do nothing: through MPI nobody is lost alone, so no generation ends while a message is on its way."""

    def shutdown(self) -> None:
        """Wait for nothing more, and tell nobody what still comes and goes."""
        self._loop.call(self._give_up)

    def close(self, deadline_s: float) -> None:
        """Wait for the last words until `deadline_s`, on time.monotonic(), then give up."""
        if self._loop.is_current:
            self._give_up()
            return
        self._over.wait(max(0.0, deadline_s - time.monotonic()))
        self.shutdown()
        self._over.wait(LAST_WAIT_S)

    # In the loop's thread

    def _failed(self, error: Exception) -> None:
        self._link.fail(error)
        self._give_up()

    def _give_up(self) -> None:
        if self._awaited is not None and not self._has_given_up:
            self._loop.cancel(self._awaited)
        self._has_given_up, self._reading = True, False
        self._over.set()

    def _look_up(self) -> None:
        """See whether all is over."""
        if self._link.is_ending and not (self._reading or self._in_flight_bytes):
            self._over.set()

    def _write(self) -> None:
        if self._has_given_up:
            return
        try:
            while self._in_flight_bytes < max(1, self._most_in_flight_bytes) and (frame := self._link.take()):
                self._begin(frame)
        except Exception as error:  # MPI refuses it: never a silent end
            self._failed(error)
        self._look_up()

    def _begin(self, frame: Frame) -> None:
        messages = self._messages(frame)
        outgoing = _Outgoing(frame, len(messages))
        self._in_flight_bytes += frame.num_bytes
        for message in messages:
            self._loop.send(self._peer, message, partial(self._sent, outgoing), self._failed)

    def _messages(self, frame: Frame) -> list[memoryview]:
        if frame.num_bytes <= len(self._first):
            return [memoryview(b"".join(frame.parts))]
        header, payload = frame.parts
        return [header, *(payload[at : at + self._piece_bytes] for at in range(0, len(payload), self._piece_bytes))]

    def _sent(self, outgoing: _Outgoing, _: int) -> None:
        outgoing.num_messages -= 1
        if outgoing.num_messages or self._has_given_up:
            return
        self._in_flight_bytes -= outgoing.frame.num_bytes
        try:
            outgoing.frame.done()
        except Exception as error:  # a callback that raised: never a silent end
            self._failed(error)
        self._write()

    def _await_first(self) -> None:
        if self._has_given_up:
            return
        try:
            self._await(self._first, self._take_first, moves=False)
        except Exception as error:  # MPI refuses it: never a silent end
            self._failed(error)

    def _await(self, into: memoryview, take: Any, *, moves: bool) -> None:
        self._awaited = self._loop.receive(self._peer, into, partial(self._arrived, take), self._failed, moves=moves)

    def _arrived(self, take: Any, num_bytes: int) -> None:
        self._awaited = None
        if self._has_given_up:
            return
        try:
            take(num_bytes)
        except Exception as error:  # no frame, or a callback that raised: never a silent end
            self._failed(error)
        self._look_up()

    def _take_first(self, num_bytes: int) -> None:
        """Take in a header, and its payload if that has come with it; then wait for what follows."""
        start = 0
        while start < num_bytes and self._reading:
            part = min(len(self._rest), num_bytes - start)
            self._rest[:part] = self._first[start : start + part]
            start += part
            self._filled(part)
        if self._reading:
            self._await_piece() if len(self._rest) > WITH_HEADER_BYTES else self._await_first()

    def _await_piece(self) -> None:
        self._await(self._rest[: self._piece_bytes], self._take_piece, moves=True)

    def _take_piece(self, num_bytes: int) -> None:
        is_last = num_bytes == len(self._rest)
        self._filled(num_bytes)
        if self._reading:
            self._await_first() if is_last else self._await_piece()

    def _filled(self, num_bytes: int) -> None:
        """Take note of bytes that came; ask the link where the next ones go when that was all."""
        self._rest = self._rest[num_bytes:]
        if not self._rest:
            following = next(self._incoming, None)
            self._reading = following is not None
            self._rest = following or self._rest
