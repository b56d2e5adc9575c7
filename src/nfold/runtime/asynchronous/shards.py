"""The elements of each bucket that one rank serves, as a worker holds them and as the server does."""

from dataclasses import dataclass

import torch

from nfold.core.placement import Reduction
from nfold.core.schedule import StatisticsGroup
from nfold.core.tasks import BufferKind, Elements
from nfold.runtime.parameters.buffers import DTYPES, Buffers, as_bytes


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements [start, stop) of a bucket that one rank serves."""

    name: str
    start: int
    stop: int
    dtype: str

    def of(self, kind: BufferKind) -> Elements:
        """Return the same elements of one kind of buffer, such as `gradient`."""
        return Elements(kind, self.name, self.start, self.stop)

    def empty(self) -> torch.Tensor:
        """Return uninitialised host memory for the elements: a tensor of shape [stop - start]."""
        return torch.empty(self.stop - self.start, dtype=DTYPES[self.dtype])


def slices(reductions: tuple[Reduction, ...], server: int) -> tuple[Slice, ...]:
    """Return the slices of all buckets that a rank serves."""
    return tuple(
        Slice(reduction.name, share.start, share.stop, reduction.dtype)
        for reduction in reductions
        for share in reduction.shares
        if share.rank == server
    )


def rows(groups: tuple[StatisticsGroup, ...], chunks: tuple[int, ...]) -> tuple[Slice, ...]:
    """Return the elements that hold the batch statistics of a ticket's chunks, which must follow each other."""
    if not chunks:
        return ()
    first, last = chunks[0], chunks[-1] + 1
    return tuple(
        Slice(group.name, first * group.num_elements, last * group.num_elements, group.dtype) for group in groups
    )


class Slots:
    """A rank's buffers of some slices, and the host memory from which messages are sent."""

    def __init__(self, buffers: Buffers, kind: BufferKind, parts: tuple[Slice, ...]) -> None:
        self._data = [buffers.flat(part.of(kind)) for part in parts]
        self._host = [data if data.is_cpu else torch.empty_like(data, device="cpu") for data in self._data]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The elements, in host memory."""
        return self._host

    def wires(self) -> list[memoryview]:
        """Return the bytes of each part in host memory."""
        return [as_bytes(host) for host in self._host]

    def pack(self) -> None:
        """Copy the elements from the buffers to host memory."""
        for host, data in zip(self._host, self._data, strict=True):
            if host is not data:
                host.copy_(data)

    def unpack(self) -> None:
        """Copy what was received from host memory to the buffers."""
        for host, data in zip(self._host, self._data, strict=True):
            if host is not data:
                data.copy_(host)
