"""Turns a sample into bytes and back: the item that a data set gives, or a file as it is.

Nothing is pickled, since what comes from elsewhere is read here. Each part of an item is a letter and what follows:

    N  T  F          None, True, False          s  b      text and bytes, with their length
    i  f  c          numbers                    ( [ {     tuple, list and dict, with their length
    t                a tensor with its strides  a  g      a numpy array, a numpy scalar, as .npy has them

A tensor is copied first, so that a view does not drag along what it is a view of.
"""

import ctypes
import io
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from nfold.capture.batches.tree import dtype_name, shapes_text
from nfold.errors import InternalError, ProgramError

_U32, _U64, _F64, _C128 = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<d"), struct.Struct("<dd")
_KNOWN = "Give plain tensors, numpy arrays, numbers and texts, or tuples, lists or dicts of them"


@dataclass(frozen=True, slots=True)
class Record:
    """A sample as it travels and is kept."""

    data: bytes
    name: str = ""
    """Of the file that the bytes are, by its path below its folder; empty: they are an item."""


class _CannotTravelError(Exception):
    """A part of an item has no form as bytes; the message says which."""


def item_to_bytes(item: Any, named: str) -> bytes:
    """Return an item as bytes.

    Args:
        item: that the user's data set gave.
        named: what to call it: "item 7 of train_data()".

    Raises:
        ProgramError: it holds something that cannot travel.
    """
    parts: list[bytes] = []
    try:
        _write(item, parts)
    except _CannotTravelError as error:
        raise ProgramError(
            f"{named} holds {error}, which cannot be sent to another node. {_KNOWN}; or let the files "
            "themselves travel: nfold.local_data(FOLDER, read=...); or keep all samples where they are: pinned=True."
        ) from None
    return b"".join(parts)


def item_of_bytes(data: bytes) -> Any:
    """Return the item that bytes stand for; its tensors have memory of their own.

    Raises:
        InternalError: they are no item.
    """
    reader = _Reader(data)
    item = reader.read()
    if reader.place != len(data):
        raise InternalError(f"an item of {len(data)} bytes ends after {reader.place}")
    return item


def _write(value: Any, parts: list[bytes]) -> None:
    writer = _WRITERS.get(type(value))
    if writer is None:
        raise _CannotTravelError(f"a value of type {type(value).__name__}")
    writer(value, parts)


def _write_none(_: None, parts: list[bytes]) -> None:
    parts.append(b"N")


def _write_bool(value: bool, parts: list[bytes]) -> None:
    parts.append(b"T" if value else b"F")


def _write_int(value: int, parts: list[bytes]) -> None:
    _write_sized(b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True), parts)


def _write_float(value: float, parts: list[bytes]) -> None:
    parts.append(b"f" + _F64.pack(value))


def _write_complex(value: complex, parts: list[bytes]) -> None:
    parts.append(b"c" + _C128.pack(value.real, value.imag))


def _write_text(value: str, parts: list[bytes]) -> None:
    _write_sized(b"s", value.encode("utf-8", "surrogatepass"), parts)


def _write_bytes(value: bytes, parts: list[bytes]) -> None:
    _write_sized(b"b", value, parts)


def _write_sized(letter: bytes, data: bytes, parts: list[bytes]) -> None:
    parts += (letter, _U64.pack(len(data)), data)


def _write_tuple(value: tuple[Any, ...], parts: list[bytes]) -> None:
    _write_all(b"(", value, parts)


def _write_list(value: list[Any], parts: list[bytes]) -> None:
    _write_all(b"[", value, parts)


def _write_all(letter: bytes, values: Any, parts: list[bytes]) -> None:
    parts += (letter, _U32.pack(len(values)))
    for each in values:
        _write(each, parts)


def _write_dict(value: dict[Any, Any], parts: list[bytes]) -> None:
    parts += (b"{", _U32.pack(len(value)))
    for key, each in value.items():
        _write(key, parts)
        _write(each, parts)


def _write_tensor(value: torch.Tensor, parts: list[bytes]) -> None:
    if not _is_plain(value):
        raise _CannotTravelError(f"{shapes_text(value)} that is {_unlike_plain(value)}")
    alone = value if _is_in_order(value) else value.detach().resolve_conj().resolve_neg().clone()
    _write_sized(b"t", _form(alone.dtype, alone.shape, alone.stride()), parts)
    size = alone.numel() * alone.itemsize
    _write_sized(b"", ctypes.string_at(alone.data_ptr(), size) if size else b"", parts)


def _is_in_order(tensor: torch.Tensor) -> bool:
    """Whether a tensor's bytes lie one after another as they are sent."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


@lru_cache
def _form(dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    return f"{dtype_name(dtype)} {_joined(shape)} {_joined(strides)}".encode()


def _is_plain(tensor: torch.Tensor) -> bool:
    is_dense = tensor.layout is torch.strided and not tensor.is_quantized
    return is_dense and tensor.device.type == "cpu" and not tensor.requires_grad


def _unlike_plain(tensor: torch.Tensor) -> str:
    if tensor.device.type != "cpu":
        return f"on {tensor.device}"
    return "part of a computation (requires_grad)" if tensor.requires_grad else f"{tensor.layout}"


def _joined(numbers: Any) -> str:
    return ",".join(map(str, numbers))


def _write_array(value: Any, parts: list[bytes]) -> None:
    _write_npy(b"a", np.asarray(value), parts)


def _write_npy(letter: bytes, value: "np.ndarray[Any, Any]", parts: list[bytes]) -> None:
    if value.dtype.hasobject:
        raise _CannotTravelError("a numpy array of Python objects")
    file = io.BytesIO()
    np.lib.format.write_array(file, value, allow_pickle=False)
    _write_sized(letter, file.getvalue(), parts)


def _write_scalar(value: Any, parts: list[bytes]) -> None:
    _write_npy(b"g", np.asarray(value), parts)


_WRITERS: dict[type, Callable[[Any, list[bytes]], None]] = {
    type(None): _write_none,
    bool: _write_bool,
    int: _write_int,
    float: _write_float,
    complex: _write_complex,
    str: _write_text,
    bytes: _write_bytes,
    tuple: _write_tuple,
    list: _write_list,
    dict: _write_dict,
    torch.Tensor: _write_tensor,
    np.ndarray: _write_array,
    np.memmap: _write_array,
    **{kind: _write_scalar for kind in {np.dtype(code).type for code in np.typecodes["All"] if code != "O"}},
}


class _Reader:
    """Reads parts of an item one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def read(self) -> Any:
        letter = self._take(1)
        if letter not in _READERS:
            raise InternalError(f"an item of {len(self._data)} bytes is none from byte {self.place - 1} on")
        return _READERS[letter](self)

    def count(self) -> int:
        return int(_U32.unpack(self._take(4))[0])

    def sized(self) -> bytes:
        return self._take(_U64.unpack(self._take(8))[0])

    def float(self) -> float:
        return float(_F64.unpack(self._take(8))[0])

    def all(self) -> list[Any]:
        return [self.read() for _ in range(self.count())]

    def dict(self) -> dict[Any, Any]:
        return {self.read(): self.read() for _ in range(self.count())}

    def tensor(self) -> torch.Tensor:
        form, data = _form_of(self.sized()), self.sized()
        if len(data) != form.num_bytes:
            raise InternalError(f"a tensor of shape {form.shape} and strides {form.strides} has not {len(data)} bytes")
        found = torch.empty_strided(form.shape, form.strides, dtype=form.dtype)
        ctypes.memmove(found.data_ptr(), data, len(data))
        return found

    def array(self) -> "np.ndarray[Any, Any]":
        found: np.ndarray[Any, Any] = np.lib.format.read_array(io.BytesIO(self.sized()), allow_pickle=False)
        return found

    def _take(self, size: int) -> bytes:
        begin, self.place = self.place, self.place + size
        if self.place > len(self._data):
            raise InternalError(f"an item of {len(self._data)} bytes breaks off")
        return self._data[begin : self.place]


class _Form(NamedTuple):
    """What a tensor is beside its bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    num_bytes: int


@lru_cache
def _form_of(text: bytes) -> _Form:
    dtype_text, shape_text, strides_text = text.decode().split(" ")
    shape, strides = _numbers(shape_text), _numbers(strides_text)
    alike = torch.empty_strided(shape, strides, dtype=getattr(torch, dtype_text), device="meta")
    return _Form(shape, strides, alike.dtype, alike.untyped_storage().nbytes())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",")) if text else ()


_READERS: dict[bytes, Callable[[_Reader], Any]] = {
    b"N": lambda _: None,
    b"T": lambda _: True,
    b"F": lambda _: False,
    b"i": lambda reader: int.from_bytes(reader.sized(), "little", signed=True),
    b"f": _Reader.float,
    b"c": lambda reader: complex(reader.float(), reader.float()),
    b"s": lambda reader: reader.sized().decode("utf-8", "surrogatepass"),
    b"b": _Reader.sized,
    b"(": lambda reader: tuple(reader.all()),
    b"[": _Reader.all,
    b"{": _Reader.dict,
    b"t": _Reader.tensor,
    b"a": _Reader.array,
    b"g": lambda reader: reader.array()[()],
}
