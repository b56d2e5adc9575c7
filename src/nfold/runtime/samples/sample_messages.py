"""What travels between the node that fetches samples and one that sends them.

    fetches                                    sends
    ask k: count samples from first on   -->
                                         <--   head k: piece bytes; of each sample length, crc32, length of name
                                         <--   pieces: all names and samples of that answer, one behind the other
    ask k: 0 samples, it is the last one -->

Several asks are on their way at once. Pieces are counted over all answers to a node, so both sides know their tags; the
last piece of an answer may be shorter. A node that has sent its last ask waits for nothing, and its source neither.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from nfold.errors import InternalError, RunError
from nfold.runtime.samples.file_names import lies_below
from nfold.runtime.samples.record import Record
from nfold.transport.tags import Use, tag_of

_ASK, _HEAD, _SAMPLE = struct.Struct("<QII"), struct.Struct("<I"), struct.Struct("<QII")
_ROUND_BITS, _COUNT_BITS = 8, 30
ASK_BYTES = _ASK.size
BEFORE_TRAINING = 0
"""Epoch of samples that are needed before training; those that epoch e needs have e + 1."""


class Kind(IntEnum):
    """Of a message; each is counted by itself."""

    ASK = 0
    HEAD = 1
    PIECE = 2


def tag(moving: int, kind: Kind, number: int) -> int:
    """Return the tag of a message.

    Args:
        moving: counts the orders to move of a generation.
        kind: of the message.
        number: counts those of this kind between two nodes, in this direction.

    Raises:
        InternalError: one of them is too large.
    """
    if moving >= 1 << _ROUND_BITS or number >= 1 << _COUNT_BITS:
        raise InternalError(f"message {number} of move {moving} has no tag")
    return tag_of(Use.SAMPLES, (moving << 2 | kind) << _COUNT_BITS | number)


@dataclass(frozen=True, slots=True)
class Ask:
    """Samples that a node wants next; 0 of them: no more."""

    first: int
    count: int
    epoch: int
    """See BEFORE_TRAINING. Those of an earlier one are sent first."""

    def packed(self) -> bytes:
        """Return it as ASK_BYTES."""
        return _ASK.pack(self.first, self.count, self.epoch)


def ask_of(data: bytes | bytearray) -> Ask:
    """Return what ASK_BYTES say."""
    return Ask(*_ASK.unpack(data))


def head_bytes(count: int) -> int:
    """Return the length of the head of an answer of so many samples."""
    return _HEAD.size + count * _SAMPLE.size


@dataclass(frozen=True, slots=True)
class Answer:
    """Samples on their way."""

    head: bytes
    body: bytes
    piece_bytes: int


def answer_with(records: Sequence[Record], piece_bytes: int) -> Answer:
    """Return what is sent of samples."""
    named = [(record.name.encode("utf-8", "surrogateescape"), record.data) for record in records]
    samples = [_SAMPLE.pack(len(data), _crc(name, data), len(name)) for name, data in named]
    body = b"".join(part for pair in named for part in pair)
    return Answer(_HEAD.pack(piece_bytes) + b"".join(samples), body, piece_bytes)


@dataclass(frozen=True, slots=True)
class Head:
    """What a head says."""

    piece_bytes: int
    samples: tuple[tuple[int, int, int], ...]
    """Length, crc32 of name and bytes, and length of the name of each."""

    @property
    def num_bytes(self) -> int:
        """Of all pieces that follow."""
        return sum(length + name_length for length, _, name_length in self.samples)


def head_of(data: bytes | bytearray) -> Head:
    """Return what a head says."""
    return Head(_HEAD.unpack_from(data)[0], tuple(_SAMPLE.iter_unpack(memoryview(data)[_HEAD.size :])))


def records_in(head: Head, body: memoryview, first: int, source: int) -> Iterator[tuple[int, Record]]:
    """Yield the samples of an answer with their numbers.

    Args:
        head: of the answer.
        body: all its pieces.
        first: number of the first sample.
        source: the rank that sent them.

    Raises:
        RunError: one is not what was read there, or has a name that leads out of its folder.
    """
    place = 0
    for number, (length, crc, name_length) in enumerate(head.samples, first):
        encoded, place = bytes(body[place : place + name_length]), place + name_length
        data, place = bytes(body[place : place + length]), place + length
        if _crc(encoded, data) != crc:
            raise RunError(
                f"sample {number} came from rank {source} with checksum {_crc(encoded, data):08x}, and had {crc:08x}: "
                "it was changed on its way, or in memory. Let the run go on with --resume, and it is fetched again."
            )
        name = encoded.decode("utf-8", "surrogateescape")
        if name and not lies_below(name):
            raise RunError(
                f"sample {number} came from rank {source} as the file {name[:80]!r}, which does not lie below a "
                "folder. It was not kept. See what runs on that node."
            )
        yield number, Record(data, name)


def _crc(name: bytes, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(name))
