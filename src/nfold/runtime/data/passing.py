"""Passes batches between a rank and its own loaders: their structure is pickled, their numbers are shared memory.

    loader: pack  ──>  bytes + descriptor of anonymous memory  ──>  rank: unpack, which copies nothing

Pickle reads whatever it is told to, so nothing else in nfold uses it: here both ends are one user's processes, which
have loaded the same script, at the two ends of a socket that nobody else can open. Tensors keep their strides, and
those that share memory share it afterwards, since kernels and operators that write can tell.
"""

import io
import mmap
import os
import pickle
import socket
import struct
from typing import Any

import torch

_HEADER = struct.Struct("!Q?")
_ALIGNED = 64
"""Bytes; as torch's own allocator does, since kernels differ by it."""
_NAME = "nfold-batch"

Place = tuple[int, int]
"""Where bytes of a storage stand in the shared memory, and which is the first of them."""


class Closed(Exception):
    """The other end has been closed, or its process has ended."""


def send(connection: socket.socket, value: Any) -> None:
    """Send anything that can be pickled, with the numbers of its tensors as shared memory.

    Raises:
        Closed: the other end is gone.
        Exception: it cannot be pickled; nothing was sent.
    """
    text, memory = _packed(value)
    descriptors = [] if memory is None else [memory]
    try:
        socket.send_fds(connection, [_HEADER.pack(len(text), bool(descriptors))], descriptors)
        connection.sendall(text)
    except OSError as error:
        raise Closed from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def receive(connection: socket.socket) -> Any:
    """Wait for what the other end sends.

    Raises:
        Closed: it is gone.
    """
    try:
        header, descriptors, _, _ = socket.recv_fds(connection, _HEADER.size, 1)
        length, _ = _HEADER.unpack(header + _exactly(connection, _HEADER.size - len(header)))
        text = _exactly(connection, length)
    except OSError as error:
        raise Closed from error
    places, inner = pickle.loads(text)
    if not descriptors:
        return _Unpickler(inner, places, None).load()
    with open(descriptors[0], "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return _Unpickler(inner, places, torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()).load()


def _exactly(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        got = connection.recv(min(length - len(parts), 1 << 20))
        if not got:
            raise Closed
        parts += got
    return bytes(parts)


def _packed(value: Any) -> tuple[bytes, int | None]:
    """Return a value as bytes and a descriptor of the memory that they speak of; None: they need none."""
    inner = io.BytesIO()
    pickler = _Pickler(inner)
    pickler.dump(value)
    places: list[Place] = []
    end = 0
    for storage in pickler.storages:
        places.append((end, storage.first))
        end += -(-(storage.stop - storage.first) // _ALIGNED) * _ALIGNED
    text = pickle.dumps((places, inner.getvalue()))
    return text, _shared(pickler.storages, places, end) if end else None


def _shared(storages: "list[_Storage]", places: list[Place], size: int) -> int:
    descriptor = os.memfd_create(_NAME)
    try:
        os.ftruncate(descriptor, size)
        for storage, (begin, _) in zip(storages, places, strict=True):
            left, at = storage.data(), begin
            while left:
                written = os.pwrite(descriptor, left, at)
                left, at = left[written:], at + written
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class _Storage:
    """The bytes of a storage that are passed: those between the first and the last that a tensor shows."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._storage = storage
        self.first, self.stop = storage.nbytes(), 0

    def hold(self, tensor: torch.Tensor) -> None:
        """Pass what a tensor shows, too."""
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        first = int(tensor.storage_offset())
        self.first = min(self.first, first * tensor.itemsize // _ALIGNED * _ALIGNED)
        self.stop = max(self.stop, (first + last + 1) * tensor.itemsize)

    def data(self) -> memoryview:
        """Return the bytes, without a copy."""
        view = torch.empty(0, dtype=torch.uint8).set_(self._storage, self.first, (self.stop - self.first,), (1,))
        return view.numpy().data


class _Pickler(pickle.Pickler):
    """Leaves out the numbers of plain tensors, and lists the storages that they lie in."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self._known: dict[int, int] = {}
        self.storages: list[_Storage] = []

    def persistent_id(self, value: Any) -> Any:
        """Name a plain tensor by the number of its storage and where it lies there; None: pickle it."""
        if not _is_plain(value):
            return None
        storage = value.untyped_storage()
        number = self._known.setdefault(storage.data_ptr(), len(self.storages))
        if number == len(self.storages):
            self.storages.append(_Storage(storage))
        self.storages[number].hold(value)
        return number, value.dtype, tuple(value.shape), value.stride(), value.storage_offset()


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, places: list[Place], memory: torch.UntypedStorage | None) -> None:
        super().__init__(io.BytesIO(data))
        self._places, self._memory = places, memory

    def persistent_load(self, name: Any) -> torch.Tensor:
        """Return the tensor of a name; it lies in the shared memory and keeps it alive."""
        number, dtype, shape, stride, offset = name
        begin, first = self._places[number]
        assert self._memory is not None, "tensors come with memory"
        found = torch.empty(0, dtype=dtype)
        return found.set_(self._memory, (begin - first) // found.itemsize + offset, shape, stride)


def _is_plain(value: Any) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not (value.requires_grad or value.is_quantized or value.is_conj() or value.is_neg())
        and value.numel() > 0
    )
