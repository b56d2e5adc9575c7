"""Reads event files as TensorBoard does, from its documents and not from what writes them."""

import struct
from dataclasses import dataclass, field


@dataclass
class Event:
    """What was told at once."""

    at: float = 0.0
    step: int = 0
    version: str = ""
    begins_anew: bool = False
    values: dict[str, float] = field(default_factory=dict)


def read_points(folder):
    """Return (step, value) by name, of all files in order; what a later session begins anew is dropped."""
    points = {}
    for path in sorted(folder.glob("*tfevents*")):
        for event in read_events(path):
            if event.begins_anew:
                points = {name: [each for each in row if each[0] < event.step] for name, row in points.items()}
            for name, value in event.values.items():
                points.setdefault(name, []).append((event.step, value))
    return points


def read_events(path):
    """Return the whole records of a file; half of one at the end is left."""
    data, events = path.read_bytes(), []
    while len(data) >= 12 and len(data) >= 16 + (length := struct.unpack("<Q", data[:8])[0]):
        check(data[:8], data[8:12])
        check(data[12 : 12 + length], data[12 + length : 16 + length])
        events.append(_event(data[12 : 12 + length]))
        data = data[16 + length :]
    return events


def check(data, checksum):
    """Compare with a masked CRC-32C, computed bit by bit."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ 0x82F63B78 * (rest & 1)
    crc = rest ^ 0xFFFFFFFF
    masked = ((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8 & 0xFFFFFFFF
    assert struct.pack("<I", masked) == checksum


def _event(data):
    event = Event()
    for number, value in _fields(data):
        if number == 1:
            (event.at,) = struct.unpack("<d", value)
        elif number == 2:
            event.step = value
        elif number == 3:
            event.version = value.decode()
        elif number == 7:
            event.begins_anew = list(_fields(value)) == [(1, 1)]
        elif number == 5:
            for _, told in _fields(value):
                parts = dict(_fields(told))
                (event.values[parts[1].decode()],) = struct.unpack("<f", parts[2])
    return event


def _fields(data):
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
        else:
            if kind == 2:
                size, at = _varint(data, at)
            else:
                size = {1: 8, 5: 4}[kind]
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def _varint(data, at):
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
