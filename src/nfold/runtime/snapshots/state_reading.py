"""Reads the file of a whole state that nobody has in one place: from what this process holds, and from other ranks."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nfold.errors import InternalError
from nfold.runtime.checkpoint.exchange import Exchange
from nfold.runtime.checkpoint.state_file import StateHeader
from nfold.runtime.snapshots.state_giving import NO_MORE, REQUEST, question_tag
from nfold.runtime.snapshots.state_memory import HeldState, Piece
from nfold.transport.generations.generation_transport import GenerationTransport


@dataclass(frozen=True, slots=True)
class Source:
    """Who has bytes [begin, end) of the file."""

    begin: int
    end: int
    rank: int
    piece: Piece
    start: int
    """The element of the piece at `begin`."""
    item_bytes: int

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "Source":
        """Read what the coordinator wrote."""
        begin, end, rank, member, index, start, item_bytes = row
        return cls(begin, end, rank, (member, index), start, item_bytes)


def own_sources(state: HeldState, header: bytes, rank: int) -> list[Source]:
    """Return where a process reads all bytes of a file in a state that it holds itself; nothing: it lacks some.

    Args:
        state: that it holds.
        header: of the file.
        rank: of the process.
    """
    file, found = StateHeader(header), list[Source]()
    for piece, part in state.pieces.items():
        name, dtype, shape, start, stop = part.described
        entry = file.entries.get(name)
        if entry is None or (entry.dtype, entry.shape) != (dtype, tuple(shape)):
            return []
        begin, item_bytes = file.range_of(name)[0], entry.item_bytes
        if start < stop:
            found.append(Source(begin + start * item_bytes, begin + stop * item_bytes, rank, piece, 0, item_bytes))
    found.sort(key=lambda source: source.begin)
    ends = [len(header), *(source.end for source in found)]
    is_whole = [*(source.begin for source in found), file.file_bytes] == ends
    return found if is_whole else []


class StateReading:
    """One rank's way to the file."""

    def __init__(
        self,
        transport: GenerationTransport,
        state: HeldState | None,
        sources: Sequence[Source],
        own: Sequence[Source] = (),
    ) -> None:
        """Args:
        transport: of the generation that reads.
        state: what this process holds itself; None: nothing.
        sources: of all bytes of the file that anybody may ask for, in their order.
        own: the same where it has all of them itself; others wait to be asked all the same.
        """
        self._exchange = Exchange(transport, transport.on_failure_too)
        self._rank, self._state, self._sources = transport.rank, state, own or sources
        self._peers = {source.rank for source in sources} - {self._rank}
        self._begins = [source.begin for source in self._sources]
        self._asked = [0] * transport.world_size
        self.received_bytes = 0

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop) of the file, which are whole elements of one tensor: a view of what is held here,
        or what has come, which nobody else holds.

        Raises:
            TransportError: a rank that has some is lost.
            InternalError: nobody has them.
        """
        if (own := self._own_range(start, stop)) is not None:
            return own
        found = memoryview(bytearray(stop - start))
        messages: list[int] = []
        position, received_bytes = start, 0
        while position < stop:
            source = self._source_of(position)
            end = min(stop, source.end)
            where = found[position - start : end - start]
            first = source.start + (position - source.begin) // source.item_bytes
            last = first + (end - position) // source.item_bytes
            if source.rank == self._rank:
                where[:] = self._own.read(source.piece, first, last)
            else:
                messages += self._ask(source, first, last, where)
                received_bytes += end - position
            position = end
        self._exchange.wait(messages)
        self.received_bytes += received_bytes
        return found

    def _own_range(self, start: int, stop: int) -> memoryview | None:
        """Return bytes that are all in one piece that is held here, without copying them; None: they are not."""
        if start == stop:
            return None
        source = self._source_of(start)
        if source.rank != self._rank or source.end < stop:
            return None
        first = source.start + (start - source.begin) // source.item_bytes
        return self._own.read(source.piece, first, first + (stop - start) // source.item_bytes)

    def _source_of(self, position: int) -> Source:
        source = self._sources[bisect.bisect_right(self._begins, position) - 1]
        if not source.begin <= position < source.end:
            raise InternalError(f"nobody has byte {position} of the state")
        return source

    def _ask(self, source: Source, first: int, last: int, into: memoryview) -> tuple[int, int]:
        tag = question_tag(self._asked[source.rank])
        self._asked[source.rank] += 1
        answer = self._exchange.receive(source.rank, tag + 1, into)
        return answer, self._exchange.send(source.rank, tag, REQUEST.pack(*source.piece, first, last))

    def end(self) -> None:
        """Ask nobody for anything more."""
        for rank in self._peers:
            self._exchange.send(rank, question_tag(self._asked[rank]), NO_MORE)
        self._exchange.wait()

    @property
    def _own(self) -> HeldState:
        if self._state is None:
            raise InternalError("this rank shall read what it holds, and holds nothing")
        return self._state
