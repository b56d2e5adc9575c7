"""Fetches samples from the nodes that hold them into the store, several asks at once, so that a long link is filled."""

import queue
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nfold.runtime.samples.sample_messages import Ask, Head, Kind, head_bytes, head_of, records_in, tag
from nfold.runtime.samples.sample_store import SampleStore
from nfold.transport.generations.generation_transport import GenerationTransport

MOST_ASKS = 8
"""On their way to one node."""
ASK_FOR_BYTES = 256 << 10
"""Of samples in an answer, about. With MOST_ASKS of them, 100 Mbit/s are filled over 150 ms."""
FIRST_COUNT, MOST_COUNT = 4, 4096
"""Samples of an ask before anybody knows how large they are, and at most."""

Wanted = tuple[int, int, int]
"""First and end of a range of samples, and when they are needed; see `Ask`."""
Event = Callable[[], None]


@dataclass(slots=True)
class _Asked:
    """An ask that is on its way, and what has come of it."""

    ask: Ask
    head: bytearray
    body: bytearray = field(default_factory=bytearray)
    told: Head | None = None
    has_head: bool = False
    pieces_left: int = 0


@dataclass(slots=True)
class _Source:
    """One node that samples come from."""

    rank: int
    wanted: deque[Wanted]
    asked: deque[_Asked] = field(default_factory=deque)
    num_asks: int = 0
    num_pieces: int = 0
    is_told: bool = False
    """That this was all."""
    came_bytes: int = 0
    came: int = 0

    @property
    def most_asks(self) -> int:
        """How many may be on their way: one until a sample's size is known, which may be large."""
        return MOST_ASKS if self.came else 1

    @property
    def count(self) -> int:
        """How many samples to ask for at once."""
        if not self.came:
            return FIRST_COUNT
        return max(1, min(MOST_COUNT, ASK_FOR_BYTES * self.came // max(1, self.came_bytes)))


class Fetcher:
    """The fetching side of one node, for one order to move. `run` is its thread."""

    def __init__(
        self,
        transport: GenerationTransport,
        moving: int,
        wanted: Mapping[int, Sequence[Wanted]],
        store: SampleStore,
    ) -> None:
        """Args:
        transport: of the generation.
        moving: counts its orders to move.
        wanted: by rank that holds them, in the order in which they are needed.
        store: keeps them; what it has already is not asked for.
        """
        self._transport, self._moving, self._store = transport, moving, store
        self._sources = [_Source(rank, deque(missing(ranges, store))) for rank, ranges in wanted.items()]
        self._events: queue.SimpleQueue[Event | Exception] = queue.SimpleQueue()
        self._unsent = 0
        """Asks that the transport still reads."""

    @property
    def received_bytes(self) -> int:
        """So far, of names and samples."""
        return sum(source.came_bytes for source in self._sources)

    @property
    def received(self) -> int:
        """The number of samples so far."""
        return sum(source.came for source in self._sources)

    def fail(self, error: Exception) -> None:
        """End `run` with an error."""
        self._events.put(error)

    def stop(self) -> None:
        """Ask for no more; `run` ends when what is on its way has come."""
        self._events.put(self._want_no_more)

    def run(self) -> None:
        """Fetch until all is there.

        Raises:
            Exception: a sample is damaged or has no room, or what `fail` was given.
        """
        for source in self._sources:
            self._ask_on(source)
        while self._unsent or any(not source.is_told for source in self._sources):
            event = self._events.get()
            if isinstance(event, Exception):
                raise event
            event()

    def _want_no_more(self) -> None:
        for source in self._sources:
            source.wanted.clear()
            self._ask_on(source)

    def _ask_on(self, source: _Source) -> None:
        """Ask for what may be on its way, too, or say that this was all."""
        while source.wanted and len(source.asked) < source.most_asks:
            first, end, epoch = source.wanted.popleft()
            count = min(end - first, source.count)
            if first + count < end:
                source.wanted.appendleft((first + count, end, epoch))
            self._ask(source, Ask(first, count, epoch))
        if not (source.wanted or source.asked or source.is_told):
            source.is_told = True
            self._send(source, Ask(0, 0, 0))

    def _ask(self, source: _Source, ask: Ask) -> None:
        asked = _Asked(ask, bytearray(head_bytes(ask.count)))
        source.asked.append(asked)
        head_tag = tag(self._moving, Kind.HEAD, source.num_asks)

        def came() -> None:
            asked.has_head = True
            self._take_heads(source)

        self._transport.receive(source.rank, head_tag, memoryview(asked.head), lambda: self._events.put(came))
        self._send(source, ask)

    def _send(self, source: _Source, ask: Ask) -> None:
        ask_tag = tag(self._moving, Kind.ASK, source.num_asks)
        source.num_asks += 1
        self._unsent += 1
        self._transport.send(source.rank, ask_tag, memoryview(ask.packed()), lambda: self._events.put(self._one_sent))

    def _one_sent(self) -> None:
        self._unsent -= 1

    def _take_heads(self, source: _Source) -> None:
        """Prepare for the pieces of answers whose head has come. In their order, since pieces are counted over all."""
        for asked in [each for each in source.asked if each.told is None]:
            if not asked.has_head:
                break
            asked.told = head_of(asked.head)
            asked.body = bytearray(asked.told.num_bytes)
            self._await_pieces(source, asked, asked.told.piece_bytes)
        self._take_answers(source)

    def _await_pieces(self, source: _Source, asked: _Asked, piece_bytes: int) -> None:
        body = memoryview(asked.body)

        def came() -> None:
            asked.pieces_left -= 1
            self._take_answers(source)

        places = range(0, len(body), piece_bytes)
        asked.pieces_left = len(places)
        for begin in places:
            piece_tag = tag(self._moving, Kind.PIECE, source.num_pieces)
            source.num_pieces += 1
            into = body[begin : begin + piece_bytes]
            self._transport.receive(source.rank, piece_tag, into, lambda: self._events.put(came))

    def _take_answers(self, source: _Source) -> None:
        """Keep the samples of answers that are whole, in order, and ask for more."""
        while source.asked and source.asked[0].told is not None and not source.asked[0].pieces_left:
            asked = source.asked.popleft()
            assert asked.told is not None
            for number, record in records_in(asked.told, memoryview(asked.body), asked.ask.first, source.rank):
                self._store.add(number, record)
            source.came_bytes += len(asked.body)
            source.came += asked.ask.count
        self._ask_on(source)


def missing(ranges: Iterable[Wanted], store: SampleStore) -> list[Wanted]:
    """Return the ranges without what a store has."""
    found: list[Wanted] = []
    for first, end, epoch in ranges:
        for number in range(first, end):
            if number in store:
                continue
            if found and found[-1][1] == number and found[-1][2] == epoch and number > first:
                found[-1] = (found[-1][0], number + 1, epoch)
            else:
                found.append((number, number + 1, epoch))
    return found
