"""The list of what a store holds: entries that are only ever added, each with its own checksum.

    magic 8, volume 4 | number 8, offset 8, length 8, crc32 of the sample 4, length of name 2, name, crc32 of all 4 | ..

An entry is written when its sample is, so what it names is there. What a killed process left half written at the end
has no right checksum and is dropped; so is an entry whose name leads out of the store.
"""

import struct
import zlib
from typing import NamedTuple

from nfold.runtime.samples.file_names import lies_below

_MAGIC = b"nfoldS1\n"
IN_A_FILE = (1 << 64) - 1
"""Offset of a sample that is a file by itself."""
_HEADER, _FIXED, _CRC = struct.Struct("<8sI"), struct.Struct("<QQQIH"), struct.Struct("<I")


class Entry(NamedTuple):
    """One sample of a store."""

    number: int
    offset: int
    length: int
    crc: int
    name: str


class Journal(NamedTuple):
    """What a journal says."""

    volume: int
    """Number of the file that items lie in."""
    entries: list[Entry]
    end: int
    """Of the last whole entry; 0 where nothing is right."""


def header(volume: int) -> bytes:
    """Return how a journal begins."""
    return _HEADER.pack(_MAGIC, volume)


def packed(entry: Entry) -> bytes:
    """Return an entry as it is written."""
    name = entry.name.encode("utf-8", "surrogateescape")
    data = _FIXED.pack(entry.number, entry.offset, entry.length, entry.crc, len(name)) + name
    return data + _CRC.pack(zlib.crc32(data))


def journal_of(data: bytes) -> Journal:
    """Return what the bytes of a journal say, up to the last whole entry."""
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        return Journal(0, [], 0)
    _, volume = _HEADER.unpack_from(data)
    found, place = list[Entry](), _HEADER.size
    while (read := _entry_at(data, place)) is not None:
        entry, place = read
        found.append(entry)
    return Journal(volume, found, place)


def _entry_at(journal: bytes, place: int) -> tuple[Entry, int] | None:
    name_at = place + _FIXED.size
    if name_at > len(journal):
        return None
    number, offset, length, crc, name_length = _FIXED.unpack_from(journal, place)
    crc_at = name_at + name_length
    end = crc_at + _CRC.size
    if end > len(journal) or _CRC.unpack_from(journal, crc_at)[0] != zlib.crc32(journal[place:crc_at]):
        return None
    name = journal[name_at:crc_at].decode("utf-8", "surrogateescape")
    return (Entry(number, offset, length, crc, name), end) if not name or lies_below(name) else None
