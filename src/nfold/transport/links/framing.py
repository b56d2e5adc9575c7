"""Turns messages into frames of bytes and back: a fixed header, then the payload.

    | magic 4 | kind 1 | pad 3 | tag 8 | length 8 | payload ... |      little-endian

Only `DATA` carries a payload. A rank that closes says `GOODBYE` (or `ABORT` when it gives up) and reads on until its
peer answers with `ANSWER` or with a goodbye of its own, so that both know that nothing is on its way any more.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from nfold.errors import TransportError
from nfold.transport.tags import generation_of

MAGIC = b"nfF1"
_HEADER = struct.Struct("<4sB3xQQ")
HEADER_BYTES = _HEADER.size


class Kind(IntEnum):
    """What a frame says: a message, or one of the last words above."""

    DATA = 0
    GOODBYE = 1
    ABORT = 2
    ANSWER = 3


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """What comes before a payload."""

    kind: Kind
    tag: int = 0
    """Of a message, its generation included (`tags.py`)."""
    length: int = 0
    """Of the payload, in bytes."""


def pack_header(header: FrameHeader) -> bytes:
    """Return the header as HEADER_BYTES bytes."""
    return _HEADER.pack(MAGIC, header.kind, header.tag, header.length)


def unpack_header(data: bytes | bytearray | memoryview) -> FrameHeader:
    """Read a header of HEADER_BYTES bytes.

    Raises:
        TransportError: these bytes are no header.
    """
    magic, kind, tag, length = _HEADER.unpack(data)
    if magic != MAGIC or kind > Kind.ANSWER:
        raise TransportError(f"the bytes {bytes(data[:8]).hex()} are not the start of an nfold frame")
    return FrameHeader(Kind(kind), tag, length)


def flat(data: memoryview) -> memoryview:
    """Return the same memory as bytes in a row, whatever its shape and format; it must be contiguous."""
    if data.format == "B" and data.ndim == 1:
        return data
    return data.cast("B") if data.nbytes else memoryview(bytearray())


def advance(parts: Sequence[memoryview], num_bytes: int) -> list[memoryview]:
    """Return what is left of the parts after the first `num_bytes` of them went out; nothing is copied."""
    left = []
    for part in parts:
        skipped = min(num_bytes, len(part))
        num_bytes -= skipped
        if skipped < len(part):
            left.append(part[skipped:])
    return left


@dataclass(slots=True)
class Frame:
    """One frame on its way out."""

    parts: list[memoryview]
    """What is still to be written."""
    num_bytes: int
    """Of the whole frame, header included."""
    done: Callable[[], None]
    tag: int | None = None
    """Of a message."""

    @property
    def is_begun(self) -> bool:
        """Whether some of it went out: the rest has to follow."""
        return sum(map(len, self.parts)) < self.num_bytes

    def is_before(self, generation: int) -> bool:
        """Whether it is a message of an earlier generation."""
        return self.tag is not None and generation_of(self.tag) < generation

    def wrote(self, num_bytes: int) -> bool:
        """Take note of bytes that went out, and return whether that was all."""
        self.parts = advance(self.parts, num_bytes)
        return not self.parts


def data_frame(tag: int, payload: memoryview, done: Callable[[], None]) -> Frame:
    """Return the frame of a message; `done` is called when it has gone out."""
    header = pack_header(FrameHeader(Kind.DATA, tag, len(payload)))
    parts = [memoryview(header), payload] if len(payload) else [memoryview(header)]
    return Frame(parts, HEADER_BYTES + len(payload), done, tag)


def control_frame(kind: Kind) -> Frame:
    """Return a frame without payload."""
    return Frame([memoryview(pack_header(FrameHeader(kind)))], HEADER_BYTES, lambda: None)
