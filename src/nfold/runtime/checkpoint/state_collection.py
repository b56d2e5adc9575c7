"""Collects the whole model's state on rank 0, a piece at a time: no rank holds more than its own and a few pieces.

    rank 0                        others
                        <--       what there is: names, shapes, ranges       (runtime/checkpoint/gather.py)
    ask  part, range    -->
                        <--       its bytes
    ask  nothing more   -->

Rank 0 asks in the order of the file, a few MiB ahead.
"""

import itertools
import json
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nfold.runtime.checkpoint.checkpoint_format import Offer, StateReader
from nfold.runtime.checkpoint.exchange import Exchange
from nfold.runtime.checkpoint.file_layout import REST, Offered, Stretch, lay_out
from nfold.runtime.checkpoint.gather import gather
from nfold.runtime.checkpoint.joined_facts import UNKEPT
from nfold.runtime.checkpoint.state_file import RUN_BYTES, StateEntry, pack_header
from nfold.transport.protocol import Transport
from nfold.transport.tags import Use, tag_of

Facts = dict[str, Any]

COLLECTIONS = 64
"""Before a tag is used again: each collection ends before the next one begins."""
AHEAD_BYTES = 4 << 20
"""Of pieces that rank 0 has asked for and not yet taken: many where they are small, which is what a bias is."""
PIECE_BYTES = 1 << 10
"""What a piece costs beside its own bytes."""
_REQUEST = struct.Struct("<qqq")
_NO_MORE = -1


@dataclass(frozen=True, slots=True)
class ByteRun:
    """Bytes of one tensor."""

    name: str
    start: int
    """Of the tensor's own bytes."""
    data: memoryview


@dataclass(frozen=True, slots=True)
class Collected:
    """The file of the whole state, as rank 0 collects it."""

    header: bytes
    runs: Iterator[ByteRun]
    """All that comes behind the header; the other ranks serve until it is exhausted."""
    unkept: str = ""
    """Why nobody could go on from it."""


def collect(
    transport: Transport, world_size: int, number: int, offer: Offer, join: Callable[[list[Facts]], Facts | None]
) -> Collected | None:
    """Collect the state of all ranks on rank 0.

    Args:
        transport: between the ranks.
        world_size: ranks that take part.
        number: counts the gathers of a job.
        offer: this rank's.
        join: what is kept beside the tensors, from what every rank says.

    Returns:
        The file on rank 0; None elsewhere, when rank 0 has all that it wants.

    Raises:
        TransportError: a peer is lost.
        NfoldError: as `join` does.
    """
    described = json.dumps({"parts": [part.described for part in offer.parts], "facts": offer.facts}).encode()
    said = gather(transport, world_size, number, described)
    if said is None:
        _serve(transport, number, offer)
        return None
    told = [json.loads(each) for each in said]
    offered = [[Offered.from_row(row) for row in each["parts"]] for each in told]
    rest = [Offered.from_row(part.described) for part in offer.rest]
    facts = join([each["facts"] for each in told])
    entries, stretches = lay_out(offered, rest)
    runs = _runs(transport, world_size, number, offer, stretches)
    return Collected(pack_header(entries, facts), runs, (facts or {}).get(UNKEPT, ""))


def _serve(transport: Transport, number: int, offer: Offer) -> None:
    """Give rank 0 what it asks for. Its next question may be long in coming: others are asked meanwhile."""
    exchange, reader = Exchange(transport), StateReader(offer.parts)
    for count in itertools.count():
        asked = bytearray(_REQUEST.size)
        exchange.wait((exchange.receive(0, _tag(number, count), asked),), for_ever=True)
        index, start, stop = _REQUEST.unpack(asked)
        if index == _NO_MORE:
            return
        exchange.wait((exchange.send(0, _tag(number, count) + 1, reader.read(index, start, stop)),))


def _tag(number: int, count: int) -> int:
    """Of a question; the answer has the next one."""
    return tag_of(Use.PIECE, number % COLLECTIONS << 32 | 2 * count)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A run whose bytes are here, or on their way."""

    entry: StateEntry
    start: int
    data: memoryview
    messages: tuple[int, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Return what it takes to have it."""
        return len(self.data) + PIECE_BYTES


class _Questions:
    """Rank 0's side of the conversations with all others."""

    def __init__(self, transport: Transport, number: int, world_size: int) -> None:
        self.exchange = Exchange(transport)
        self._number, self._asked = number, [0] * world_size

    def ask(self, rank: int, index: int, start: int, stop: int, num_bytes: int) -> tuple[memoryview, tuple[int, ...]]:
        """Ask a rank for elements [start, stop) of one of its parts.

        Returns:
            The memory where they will be, and the messages to wait for.
        """
        tag, into = self._next_tag(rank), bytearray(num_bytes)
        received = self.exchange.receive(rank, tag + 1, into)
        return memoryview(into), (received, self.exchange.send(rank, tag, _REQUEST.pack(index, start, stop)))

    def end(self) -> None:
        """Ask nobody for anything more."""
        for rank in range(1, len(self._asked)):
            self.exchange.send(rank, self._next_tag(rank), _REQUEST.pack(_NO_MORE, 0, 0))
        self.exchange.wait()

    def _next_tag(self, rank: int) -> int:
        self._asked[rank] += 1
        return _tag(self._number, self._asked[rank] - 1)


def _runs(
    transport: Transport, world_size: int, number: int, offer: Offer, stretches: Sequence[Stretch]
) -> Iterator[ByteRun]:
    questions = _Questions(transport, number, world_size)
    own, rest = StateReader(offer.parts), StateReader(offer.rest)
    waiting: deque[_Asked] = deque()
    waiting_bytes = 0

    def taken() -> ByteRun:
        asked = waiting.popleft()
        questions.exchange.wait(asked.messages)
        return ByteRun(asked.entry.name, asked.start * asked.entry.item_bytes, asked.data)

    for stretch in _cut(stretches):
        entry, begin = stretch.entry, stretch.start - stretch.offset
        where = (stretch.index, begin, begin + stretch.stop - stretch.start)
        if stretch.rank > 0:
            num_bytes = (stretch.stop - stretch.start) * entry.item_bytes
            waiting.append(_Asked(entry, stretch.start, *questions.ask(stretch.rank, *where, num_bytes)))
        else:
            reader = rest if stretch.rank == REST else own
            waiting.append(_Asked(entry, stretch.start, reader.read(*where)))
        waiting_bytes += waiting[-1].num_bytes
        while waiting_bytes > AHEAD_BYTES:
            waiting_bytes -= waiting[0].num_bytes
            yield taken()
    while waiting:
        yield taken()
    questions.end()


def _cut(stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    for stretch in stretches:
        most = RUN_BYTES // stretch.entry.item_bytes
        for start in range(stretch.start, stretch.stop, most):
            yield stretch.part(start, min(stretch.stop, start + most))
