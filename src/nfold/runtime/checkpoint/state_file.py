"""The bytes of a file of state: header, offsets and data, written and read a piece at a time.

The format is safetensors, so that nothing of nfold is needed to read it:

    header length  header                                                        data
    u64            JSON: name -> dtype, shape, data_offsets; and free metadata   raw bytes, without gaps

Which tensors a checkpoint has is decided in `checkpoint_format.py`. Needs no torch: the coordinator keeps such files
too.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfold.core.codec import SCHEMA_VERSION, CodecError, check_version
from nfold.errors import CheckpointError

MODEL_PREFIX, AVERAGE_PREFIX = "model.", "average."
RUN_BYTES = 1 << 20
"""Of a tensor that are in memory at once."""
ITEM_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ"), 1),
}
_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_NFOLD = "nfold"
_VERSION = "version"
"""Of what is said beside tensors; the first one did not say it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateEntry:
    """One tensor of a file."""

    name: str
    dtype: str
    """As the format calls it: F32."""
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """The bytes of one element."""
        return ITEM_BYTES[self.dtype]

    @property
    def num_bytes(self) -> int:
        """The bytes of all elements."""
        return self.num_elements * self.item_bytes


def in_order(entries: Iterable[StateEntry]) -> list[StateEntry]:
    """Return entries in the order of a file: the widest elements first, so that each is aligned."""
    return sorted(entries, key=lambda entry: (-entry.item_bytes, entry.name))


def pack_header(entries: Iterable[StateEntry], facts: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes that stand before the data.

    Args:
        entries: of all tensors, in the order of the file.
        facts: JSON values to keep beside the tensors.
    """
    kept = None if facts is None else {_VERSION: SCHEMA_VERSION, **facts}
    header: dict[str, Any] = {} if kept is None else {_METADATA: {_NFOLD: json.dumps(kept)}}
    offset = 0
    for entry in entries:
        end = offset + entry.num_bytes
        header[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


class StateHeader:
    """The header of a state file: which tensors it holds, and where."""

    def __init__(self, data: bytes) -> None:
        """Read a header.

        Raises:
            CheckpointError: these bytes are none.
        """
        try:
            text = json.loads(data[_LENGTH_BYTES:])
            self._facts = text.pop(_METADATA, {}).get(_NFOLD)
            self.entries = {
                name: StateEntry(name=name, dtype=each["dtype"], shape=tuple(each["shape"]))
                for name, each in text.items()
            }
            self._begins = {name: len(data) + int(each["data_offsets"][0]) for name, each in text.items()}
            self.file_bytes = len(data) + max((int(each["data_offsets"][1]) for each in text.values()), default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise CheckpointError(f"the checkpoint is damaged: {error}") from error

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a checkpoint says beside its tensors.

        Raises:
            CheckpointError: it is no checkpoint, or a newer nfold's.
        """
        try:
            facts: dict[str, Any] = json.loads(self._facts)
            check_version("this checkpoint", int(facts.pop(_VERSION, 1)))
            return facts
        except CodecError as error:
            raise CheckpointError(str(error)) from error
        except (AttributeError, ValueError, TypeError) as error:
            raise CheckpointError(f"this is not a checkpoint of nfold, or it is damaged: {error}") from error

    def range_of(self, name: str) -> tuple[int, int]:
        """Return where a tensor's bytes begin and end in the file."""
        begin = self._begins[name]
        return begin, begin + self.entries[name].num_bytes


def header_of(path: Path) -> tuple[StateHeader, bytes]:
    """Read the header of a file, without its tensors; return it, and its bytes.

    Raises:
        CheckpointError: the file is not whole.
    """
    with open(path, "rb") as file:
        length = file.read(_LENGTH_BYTES)
        num_bytes = path.stat().st_size
        if len(length) < _LENGTH_BYTES:
            raise CheckpointError(f"the checkpoint is damaged: it has {num_bytes} bytes")
        data = length + file.read(min(num_bytes, int.from_bytes(length, "little")))
    header = StateHeader(data)
    if header.file_bytes != num_bytes:
        raise CheckpointError(f"the checkpoint is damaged: it has {num_bytes} of {header.file_bytes} bytes")
    return header, data


@dataclass(frozen=True, slots=True)
class StoredState:
    """A checkpoint on this machine's disk, opened and not loaded."""

    path: Path
    header: bytes
    """Of which the ranks learn what there is to ask for."""
    step: int

    @classmethod
    def open(cls, path: Path) -> "StoredState":
        """Look at a file without reading its tensors.

        Raises:
            CheckpointError: it is no checkpoint, or not whole.
        """
        header, data = header_of(path)
        try:
            return cls(path, data, int(header.facts["step"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint is damaged: {error}") from error

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop) of the file.

        Raises:
            CheckpointError: they are not there any more.
        """
        try:
            with open(self.path, "rb") as file:
                file.seek(start)
                data = file.read(stop - start)
        except OSError as error:
            raise CheckpointError(f"cannot read {self.path}: {error.strerror}. Put a copy of it back.") from error
        if len(data) < stop - start:
            raise CheckpointError(f"{self.path} was cut off while it was read. Put a copy of it back.")
        return data

    @property
    def has_averages(self) -> bool:
        """Whether it holds averages of the weights, too."""
        return any(name.startswith(AVERAGE_PREFIX) for name in StateHeader(self.header).entries)

    def model(self, prefix: str = MODEL_PREFIX, facts: Mapping[str, Any] | None = None) -> Iterator[bytes]:
        """Yield the bytes of a file of the module's state dict alone, or of its averages, piece by piece.

        Args:
            prefix: of the names here of what is wanted.
            facts: what the file shall say beside it.
        """
        header = StateHeader(self.header)
        sources = {name.removeprefix(prefix): name for name in header.entries if name.startswith(prefix)}
        entries = in_order(
            StateEntry(name=own, dtype=header.entries[name].dtype, shape=header.entries[name].shape)
            for own, name in sources.items()
        )
        yield pack_header(entries, facts)
        for entry in entries:
            begin, end = header.range_of(sources[entry.name])
            for start in range(begin, end, RUN_BYTES):
                yield self.read(start, min(end, start + RUN_BYTES))
