"""Gives a buddy on another host what a rank alone holds of each snapshot, at a rate that leaves links to training.

    sender                              buddy
    step of the snapshot    -->
    its pieces, in parts    -->         held once all are there
                            <--         taken
    no more                 -->

A shipment is ordered anew when what there is to give has changed; its number keeps messages of two apart.
"""

import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from nfold.errors import TransportError
from nfold.runtime.checkpoint.checkpoint_format import DTYPES, StatePart
from nfold.runtime.checkpoint.exchange import Exchange
from nfold.runtime.samples.pacing import Pacer
from nfold.runtime.snapshots.state_memory import HeldState, Piece, StateMemory
from nfold.transport.generations.generation_transport import GenerationTransport
from nfold.transport.tags import Use, tag_of

PART_BYTES = 64 << 10
_FIRST, _NUMBERS, _NUMBER_BITS = 1 << 38, 1 << 10, 28
_HEADER = struct.Struct("<q")
_NO_MORE = -1


@dataclass(frozen=True, slots=True)
class Shipment:
    """What one rank gives another one of each snapshot."""

    number: int
    source: int
    target: int
    member: int
    """Of the source."""
    pieces: tuple[tuple[int, str, str, tuple[int, ...], int, int], ...]
    """Index, name, type, shape of the tensor, first element and end."""

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "Shipment":
        """Read what the coordinator wrote."""
        number, source, target, member, pieces = row
        read = tuple((index, name, dtype, tuple(shape), *ends) for index, name, dtype, shape, *ends in pieces)
        return cls(number, source, target, member, read)

    def tag(self, count: int) -> int:
        """Return the tag of a message of this shipment."""
        return tag_of(Use.STATE, _FIRST | (self.number % _NUMBERS) << _NUMBER_BITS | count)


@dataclass(frozen=True, slots=True)
class Giving:
    """A snapshot on its way to buddies."""

    lag: int
    """Steps after which they must have it."""
    hurry: Callable[[], None]
    """Give them what is left as fast as it goes: somebody waits for that."""


class Sender:
    """Sends one shipment for each snapshot, in a thread of its own, which ends with the generation."""

    def __init__(
        self,
        transport: GenerationTransport,
        shipment: Shipment,
        bytes_per_s: float | None,
        failed: Callable[[BaseException], None] | None,
    ) -> None:
        """Args:
        transport: of the generation.
        shipment: what to give whom.
        bytes_per_s: how fast; None: as fast as it goes.
        failed: called with what has ended the thread, unless `close` has; None: who waits raises it.
        """
        self._exchange = Exchange(transport, transport.on_failure_too)
        self._shipment, self._bytes_per_s, self._count = shipment, bytes_per_s, 0
        self._pacer, self._failed = Pacer(bytes_per_s), failed
        self._changed = threading.Condition()
        self._waiting: deque[tuple[HeldState, Callable[[], None]] | None] = deque()
        self._unsent = 0
        self._failure: Exception | None = None
        self._is_closed = False
        transport.on_failure_too(self._fail)
        self._thread = threading.Thread(target=self._run, name="nfold-buddy", daemon=True)
        self._thread.start()

    def send(self, state: HeldState, taken: Callable[[], None]) -> None:
        """Begin to give the buddy what it is to have of a snapshot; `taken` is called once it has that."""
        self._pacer.change(None if self._unsent else self._bytes_per_s)  # who is behind catches up
        self._put((state, taken))

    def no_more(self) -> None:
        """Begin to tell the buddy, behind all snapshots, that no more come."""
        self._put(None)

    def hurry(self) -> None:
        """Give the buddy what was sent as fast as it goes, until more is sent."""
        self._pacer.change(None)

    def wait(self) -> None:
        """Wait until the buddy has all that was sent, which goes as fast as it can meanwhile.

        Raises:
            TransportError: it is lost.
        """
        self.hurry()
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._unsent)
            if self._failure is not None:
                raise self._failure

    def close(self) -> None:
        """Send nothing more, whatever is on its way, and end the thread."""
        self._is_closed = True
        ended = TransportError("the generation was ended")
        self._fail(ended)
        self._exchange.fail(ended)
        self._thread.join()

    def _put(self, waiting: tuple[HeldState, Callable[[], None]] | None) -> None:
        with self._changed:
            self._unsent += 1
            self._waiting.append(waiting)
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        self._pacer.close()
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while (waiting := self._next()) is not None:
                state, taken = waiting
                self._ship(state)
                self._sent()
                taken()
            self._exchange.wait((self._send(memoryview(_HEADER.pack(_NO_MORE))),))
            self._sent()
        except Exception as error:  # who waits for the buddy raises it
            self._fail(error)
            if self._failed is not None and not self._is_closed:
                self._failed(error)

    def _next(self) -> tuple[HeldState, Callable[[], None]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._waiting)
            if self._failure is not None:
                raise self._failure
            return self._waiting.popleft()

    def _sent(self) -> None:
        with self._changed:
            self._unsent -= 1
            self._changed.notify_all()

    def _ship(self, state: HeldState) -> None:
        taken, tag = bytearray(1), self._shipment.tag(self._count)
        acknowledged = self._exchange.receive(self._shipment.target, tag, taken)
        messages = [self._send(memoryview(_HEADER.pack(state.label[1])))]
        for index, *_, start, stop in self._shipment.pieces:
            data = state.read((self._shipment.member, index), 0, stop - start)
            for part in _parts(data):
                self._pacer.take(len(part))
                if self._failure is not None:
                    raise self._failure
                messages.append(self._send(part))
        self._exchange.wait((*messages, acknowledged), for_ever=True)

    def _send(self, data: memoryview) -> int:
        self._count += 1
        return self._exchange.send(self._shipment.target, self._shipment.tag(self._count - 1), data)


class Receiver:
    """Takes one shipment for each snapshot, in the transport's threads."""

    def __init__(self, transport: GenerationTransport, shipment: Shipment, memory: StateMemory) -> None:
        self._transport, self._shipment, self._memory = transport, shipment, memory
        self._count = self._left = 0
        """Of messages so far; parts of the snapshot under way that have not come."""
        self._lock, self._changed = threading.Lock(), threading.Condition()
        self._is_over = False
        self._failure: TransportError | None = None
        self._await_header()

    def wait(self) -> None:
        """Wait until the sender has said that no more come: before that, who leaves would seem lost to it.

        Raises:
            TransportError: it is lost.
        """
        self._transport.on_failure_too(self._fail)
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._failure is not None)
            if not self._is_over and self._failure is not None:
                raise self._failure

    def _fail(self, error: TransportError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _await_header(self) -> None:
        header, count = bytearray(_HEADER.size), self._count
        self._receive(memoryview(header), lambda: self._take_header(header, count))

    def _take_header(self, header: bytearray, count: int) -> None:
        (step,) = _HEADER.unpack(header)
        if step == _NO_MORE:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
            return
        pieces: dict[Piece, StatePart] = {}
        parts: list[memoryview] = []
        for index, name, dtype, shape, start, stop in self._shipment.pieces:
            values = torch.empty(stop - start, dtype=DTYPES[dtype])
            pieces[self._shipment.member, index] = StatePart(name, shape, start, values)
            parts += _parts(values.view(torch.uint8).numpy().data)
        done = partial(self._take_all, (self._transport.number, step), pieces, count)
        self._left = len(parts)
        if not parts:
            done()
        for part in parts:  # all at once: parts that have come already would wait for each other within each other
            self._receive(part, lambda: self._note_part(done))

    def _note_part(self, done: Callable[[], None]) -> None:
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            done()

    def _take_all(self, label: tuple[int, int], pieces: dict[Piece, StatePart], count: int) -> None:
        self._memory.add(label, pieces)
        self._await_header()
        self._transport.send(self._shipment.source, self._shipment.tag(count), memoryview(b"\1"), _nothing)

    def _receive(self, into: memoryview, done: Any) -> None:
        self._count += 1
        self._transport.receive(self._shipment.source, self._shipment.tag(self._count - 1), into, done)


def _parts(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), PART_BYTES):
        yield data[start : start + PART_BYTES]


def _nothing() -> None:
    """One byte that never changes."""
