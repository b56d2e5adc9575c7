"""Sends samples to the nodes that ask for them: what is needed first goes first, and all get their turn."""

import queue
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nfold.planning.residency.model.pieces import MOST_ON_WAY
from nfold.runtime.samples.pacing import Pacer
from nfold.runtime.samples.record import Record
from nfold.runtime.samples.sample_messages import ASK_BYTES, Answer, Ask, Kind, answer_with, ask_of, tag
from nfold.transport.generations.generation_transport import GenerationTransport

Event = Callable[[], None]


@dataclass(slots=True)
class _Target:
    """One node that is sent samples."""

    rank: int
    asks: deque[Ask] = field(default_factory=deque)
    num_asks: int = 0
    """That have come."""
    num_heads: int = 0
    num_pieces: int = 0
    pieces: Iterator[memoryview] | None = None
    """What is left of the answer under way."""
    epoch: int = 0
    """In which that is needed."""
    is_done: bool = False
    turns: int = 0

    @property
    def has_work(self) -> bool:
        return self.pieces is not None or bool(self.asks)

    @property
    def order(self) -> tuple[int, int]:
        """Who is next: whose samples are needed first, then who has had the fewest turns."""
        return (self.epoch if self.pieces is not None else self.asks[0].epoch, self.turns)


class Sender:
    """The sending side of one node, for one order to move. `run` is its thread."""

    def __init__(
        self,
        transport: GenerationTransport,
        moving: int,
        targets: Sequence[int],
        records_of: Callable[[Sequence[int]], list[Record]],
        pacer: Pacer,
        piece_bytes: int,
    ) -> None:
        """Args:
        transport: of the generation.
        moving: counts its orders to move.
        targets: the ranks that will ask.
        records_of: reads some of this node's samples.
        pacer: says how fast they go.
        piece_bytes: of each message.
        """
        self._transport, self._moving, self._records_of = transport, moving, records_of
        self._pacer, self._piece_bytes = pacer, piece_bytes
        self._targets = [_Target(rank) for rank in targets]
        self._events: queue.SimpleQueue[Event | Exception] = queue.SimpleQueue()
        self._on_way = 0
        self.sent_bytes = 0
        """So far, of names and samples."""

    def fail(self, error: Exception) -> None:
        """End `run` with an error."""
        self._events.put(error)

    def run(self) -> None:
        """Send until every target has said that it needs no more.

        Raises:
            Exception: a sample cannot be read, or what `fail` was given.
        """
        for target in self._targets:
            self._hear(target)
        while not all(target.is_done for target in self._targets) or self._on_way:
            next_target = self._next()
            if next_target is None:
                self._take_event(self._events.get())
            else:
                self._send_some(next_target)
                while not self._events.empty():
                    self._take_event(self._events.get())

    def _next(self) -> _Target | None:
        waiting = [target for target in self._targets if target.has_work]
        return min(waiting, key=lambda target: target.order) if waiting and self._on_way < MOST_ON_WAY else None

    def _take_event(self, event: Event | Exception) -> None:
        if isinstance(event, Exception):
            raise event
        event()

    def _hear(self, target: _Target) -> None:
        """Wait for the next ask of a node."""
        data = bytearray(ASK_BYTES)

        def heard() -> None:
            target.num_asks += 1
            ask = ask_of(data)
            if ask.count:
                target.asks.append(ask)
                self._hear(target)
            else:
                target.is_done = True

        ask_tag = tag(self._moving, Kind.ASK, target.num_asks)
        self._transport.receive(target.rank, ask_tag, memoryview(data), lambda: self._events.put(heard))

    def _send_some(self, target: _Target) -> None:
        """Send a head, or the next piece."""
        target.turns += 1
        piece = next(target.pieces, None) if target.pieces is not None else None
        if piece is not None:
            self._send(target.rank, tag(self._moving, Kind.PIECE, target.num_pieces), piece)
            target.num_pieces += 1
            self.sent_bytes += len(piece)
            return
        target.pieces = None
        if target.asks:
            self._answer(target, target.asks.popleft())

    def _answer(self, target: _Target, ask: Ask) -> None:
        numbers = range(ask.first, ask.first + ask.count)
        answer = answer_with(self._records_of(numbers), self._piece_bytes)
        self._send(target.rank, tag(self._moving, Kind.HEAD, target.num_heads), memoryview(answer.head))
        target.num_heads += 1
        target.pieces, target.epoch = _pieces(answer), ask.epoch

    def _send(self, rank: int, message: int, data: memoryview) -> None:
        self._pacer.take(len(data))
        self._on_way += 1
        self._transport.send(rank, message, data, lambda: self._events.put(self._one_gone))

    def _one_gone(self) -> None:
        self._on_way -= 1


def _pieces(answer: Answer) -> Iterator[memoryview]:
    body = memoryview(answer.body)
    return (body[begin : begin + answer.piece_bytes] for begin in range(0, len(body), answer.piece_bytes))
