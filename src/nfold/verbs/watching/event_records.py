"""Event files of TensorBoard, as far as numbers over steps need them.

A file is a row of records (TensorFlow's TFRecord): length, checksum, data, checksum. The data of a record is an Event
in protocol buffers (tensorflow/core/util/event.proto), of which five fields are written here.
"""

import struct
from collections.abc import Mapping

_POLYNOMIAL = 0x82F63B78
_VARINT, _EIGHT_BYTES, _SIZED, _FOUR_BYTES = 0, 1, 2, 5
"""How a field's value is written."""
VERSION = "brain.Event:2"
"""From 2 on, a reader drops what a session that begins again would write twice."""


def version_record(at: float) -> bytes:
    """Return the first record of a file.

    Args:
        at: seconds since 1970, as elsewhere here.
    """
    return _record(_event(at, _field(3, _SIZED, _sized(VERSION.encode()))))


def session_record(at: float, step: int) -> bytes:
    """Return a record after which readers forget what they have read of a step and those after it."""
    start = _field(1, _VARINT, _varint(1))
    return _record(_event(at, _step(step) + _field(7, _SIZED, _sized(start))))


def scalars_record(at: float, step: int, values: Mapping[str, float]) -> bytes:
    """Return a record with a number for each name."""
    summary = b"".join(
        _field(1, _SIZED, _sized(_field(1, _SIZED, _sized(name.encode())) + _field(2, _FOUR_BYTES, _single(value))))
        for name, value in values.items()
    )
    return _record(_event(at, _step(step) + _field(5, _SIZED, _sized(summary))))


def _single(value: float) -> bytes:
    """Write a number of 32 bits; one that is too large becomes infinite, as it does wherever it is computed with."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _event(at: float, content: bytes) -> bytes:
    return _field(1, _EIGHT_BYTES, struct.pack("<d", at)) + content


def _step(step: int) -> bytes:
    return _field(2, _VARINT, _varint(step))


def _field(number: int, how: int, value: bytes) -> bytes:
    return _varint(number << 3 | how) + value


def _sized(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """Return the CRC-32C, turned and shifted, since that of data which holds its own CRC is of no use."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table() -> tuple[int, ...]:
    table = []
    for index in range(256):
        entry = index
        for _ in range(8):
            entry = entry >> 1 ^ (_POLYNOMIAL if entry & 1 else 0)
        table.append(entry)
    return tuple(table)


_TABLE = _table()
