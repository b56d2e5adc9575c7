"""Where the bytes of messages lie: flat buckets of gradients and values that parameters are views of."""

from bisect import bisect_right
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from nfold.capture.optimizers.touched_rows import at_own_begin, untouched, without_minus_zero
from nfold.core.placement import Reduction
from nfold.core.schedule import StatisticsGroup
from nfold.core.tasks import Elements, MessageEnd, Receive, Send
from nfold.errors import ProgramError
from nfold.planning.reductions.acknowledgements import TAKEN
from nfold.runtime.parameters.fixed_point import write

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
    "int64": torch.int64,
}


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of one parameter that lies in some elements of a bucket."""

    name: str
    start: int
    """Elements of the parameter, counted flat."""
    stop: int
    offset: int
    """Where it begins in the bucket."""


def pieces(reduction: Reduction, sizes: Mapping[str, int], start: int = 0, stop: int | None = None) -> list[Piece]:
    """Return the parameters, or parts of them, in elements [start, stop) of a bucket."""
    found, offset = [], 0
    end = reduction.num_elements if stop is None else stop
    for name in reduction.parameters:
        low, high = max(start, offset), min(end, offset + sizes[name])
        if low < high:
            found.append(Piece(name, low - offset, high - offset, low))
        offset += sizes[name]
    return found


@dataclass(frozen=True, slots=True)
class _Region:
    """Elements [base, base + len(flat)) of a buffer."""

    flat: torch.Tensor
    base: int

    @property
    def end(self) -> int:
        return self.base + self.flat.numel()

    def cut(self, start: int, stop: int) -> torch.Tensor:
        return self.flat[start - self.base : stop - self.base]


class Buffers:
    """All flat buffers of one rank. On an accelerator the wire has a copy in host memory.

    Attributes:
        on_summed: called with elements that were added to for the last time in a step, from the transport's threads,
            and with those that nobody adds to before they are updated; None: nobody wants to know.
    """

    def __init__(
        self,
        rank: int,
        reductions: tuple[Reduction, ...],
        groups: tuple[StatisticsGroup, ...],
        num_chunks: int,
        parameters: Mapping[str, nn.Parameter],
        device: torch.device,
        sparse: Container[str] = (),
    ) -> None:
        """Make the buffers.

        Args:
            rank: whose.
            reductions: of gradients.
            groups: of batch statistics.
            num_chunks: of a step.
            parameters: by the names of the graph.
            device: where to compute.
            sparse: parameters whose gradients tell touched places from others; see
            `capture/optimizers/touched_rows.py`.
        """
        self.on_summed: Callable[[Elements], None] | None = None
        self._device, self._sparse = device, sparse
        self._marked = {each.name for each in reductions if any(name in sparse for name in each.parameters)}
        self._regions: dict[tuple[str, str], list[_Region]] = {}
        """By kind and name."""
        self._scratch: dict[int, torch.Tensor] = {}
        self._wires: dict[int, memoryview] = {}
        self._targets: dict[int, torch.Tensor] = {}
        """Of RECVs whose bytes are taken from scratch memory. Cutting one out costs as much as adding to it."""
        self._sizes = {name: parameter.numel() for name, parameter in parameters.items()}
        self._views: list[tuple[nn.Parameter, torch.Tensor, int | None, str]] = []
        self._copied: list[tuple[nn.Parameter, torch.Tensor]] = []
        """Parameters that have memory of their own, and where their new values arrive."""
        self._fraction_bits = {each.name: each.fraction_bits for each in reductions if each.fraction_bits is not None}
        for reduction in reductions:
            if reduction.route != "local":
                self._allocate(rank, reduction, parameters)
            elif reduction.fraction_bits is not None and rank in reduction.members:
                self._regions["addend", reduction.name] = self._whole_numbers([(0, reduction.num_elements)])
        self.allocate(TAKEN)
        for group in groups:
            flat = torch.zeros(num_chunks * group.num_elements, dtype=DTYPES[group.dtype], device=device)
            self._regions["statistics", group.name] = [_Region(flat, 0)]

    def allocate(self, whole: Elements) -> torch.Tensor:
        """Add a buffer of numbers in host memory, all zero, that messages can name."""
        flat = torch.zeros(whole.stop, dtype=torch.float64)
        self._regions[whole.kind, whole.name] = [_Region(flat, 0)]
        return flat

    def flat(self, elements: Elements) -> torch.Tensor:
        """Return elements of a buffer, a view of shape [stop - start]."""
        regions = self._regions[elements.kind, elements.name]
        return regions[bisect_right(regions, elements.start, key=_base) - 1].cut(elements.start, elements.stop)

    def forget_messages(self) -> None:
        """Forget where messages lie, since those of another schedule follow. None may be on its way."""
        self._scratch, self._wires, self._targets, self.on_summed = {}, {}, {}, None

    def zero_gradients(self) -> None:
        """Empty every bucket before the first backward of a step, and put back views that were replaced.

        Raises:
            ProgramError: a parameter's values were moved out of their bucket.
        """
        for parameter, gradient, value_pointer, name in self._views:
            if parameter.grad is not gradient:
                parameter.grad = gradient
            if value_pointer is not None and parameter.data_ptr() != value_pointer:
                raise ProgramError(
                    f"something replaced the data of {name}; with a parameter server its values lie where the server's "
                    "messages arrive. Change them in place (copy_), or use --strategy ring --servers 0."
                )
        for (kind, name), regions in self._regions.items():
            if kind in ("gradient", "addend"):
                for region in regions:
                    if name in self._marked:
                        untouched(region.flat)
                    else:
                        region.flat.zero_()

    def outgoing(self, task: Send, elements: Elements) -> memoryview:
        """Return the bytes of elements that are sent."""
        if task.id in self._wires:
            return self._wires[task.id]
        data = self.flat(elements)
        if data.is_cpu:
            return self._wire(task, data)
        return as_bytes(data.cpu())

    def incoming(self, task: Receive, elements: Elements) -> memoryview:
        """Return where bytes may be written before their turn has come: in place only where nothing is added."""
        if task.id in self._wires:
            return self._wires[task.id]
        data = self.flat(elements)
        if task.combine == "copy" and data.is_cpu:
            return self._wire(task, data)
        if task.id not in self._scratch:
            self._scratch[task.id] = torch.empty_like(data, device="cpu")
        return self._wire(task, self._scratch[task.id])

    def combine(self, task: Receive, elements: Elements) -> None:
        """Copy or add received elements to their buffer."""
        self._take_in(task, elements)
        if task.completes and elements.kind == "addend":
            self.write_sums(elements)
        tell = self.on_summed  # a step that has failed may end that in between
        if task.completes and tell is not None:
            tell(elements)

    def write_sums(self, addends: Elements) -> None:
        """Make gradients of the sums of whole numbers."""
        gradients = self.flat(replace(addends, kind="gradient"))
        write(self.flat(addends), self._fraction_bits[addends.name], gradients)

    def settle(self) -> None:
        """Bring the values that have arrived in a step to parameters that have memory of their own."""
        for parameter, value in self._copied:
            parameter.data.copy_(value)

    def _take_in(self, task: Receive, elements: Elements) -> None:
        if task.onto is not None:
            self._scratch[task.id].add_(self._scratch[task.onto])
        if task.combine == "hold" or task.id not in self._scratch:  # kept for later, or written in place
            return
        data = self._targets.get(task.id)
        if data is None:
            data = self._targets[task.id] = self.flat(elements)
        if task.combine == "add":
            data.add_(self._scratch[task.id].to(data.device))
        else:
            data.copy_(self._scratch[task.id])

    def _wire(self, task: MessageEnd, data: torch.Tensor) -> memoryview:
        """Views are made once: they stay valid for the life of the buffers."""
        wire = self._wires[task.id] = as_bytes(data)
        return wire

    def _allocate(self, rank: int, reduction: Reduction, parameters: Mapping[str, nn.Parameter]) -> None:
        member = rank in reduction.members
        served = [(share.start, share.stop) for share in reduction.shares if share.rank == rank]
        ranges = [(0, reduction.num_elements)] if member else _joined(served)
        if not ranges:
            return
        self._regions["gradient", reduction.name] = self._regions_of(reduction, ranges)
        if reduction.fraction_bits is not None:
            self._regions["addend", reduction.name] = self._whole_numbers(ranges)
        if reduction.route == "server":
            values = self._regions_of(reduction, ranges)
            self._regions["value", reduction.name] = values
            for value in values:
                self._fill(value, reduction, parameters)
        if member:
            self._attach(reduction, parameters)

    def _regions_of(self, reduction: Reduction, ranges: list[tuple[int, int]]) -> list[_Region]:
        dtype = DTYPES[reduction.dtype]
        return [_Region(torch.zeros(stop - start, dtype=dtype, device=self._device), start) for start, stop in ranges]

    def _whole_numbers(self, ranges: list[tuple[int, int]]) -> list[_Region]:
        return [
            _Region(torch.zeros(stop - start, dtype=torch.int64, device=self._device), start) for start, stop in ranges
        ]

    def _fill(self, value: _Region, reduction: Reduction, parameters: Mapping[str, nn.Parameter]) -> None:
        for piece in pieces(reduction, self._sizes, value.base, value.end):
            source = parameters[piece.name].detach().reshape(-1)[piece.start : piece.stop]
            value.cut(piece.offset, piece.offset + piece.stop - piece.start).copy_(source)

    def _attach(self, reduction: Reduction, parameters: Mapping[str, nn.Parameter]) -> None:
        """Make parameters and their gradients views of the bucket, so that no copy is needed to send or receive."""
        for piece in pieces(reduction, self._sizes):
            parameter = parameters[piece.name]
            where = (reduction.name, piece.offset, piece.offset + parameter.numel())
            gradient = self.flat(Elements("gradient", *where)).view(parameter.shape)
            if piece.name in self._sparse:
                gradient = at_own_begin(gradient)
                parameter.register_hook(without_minus_zero)  # type: ignore[no-untyped-call]
            parameter.grad = gradient
            pointer = None
            if reduction.route == "server" and reduction.fraction_bits is not None:
                # Kernels may compute other bits with weights that lie elsewhere than on one device.
                self._copied.append((parameter, self.flat(Elements("value", *where)).view(parameter.shape)))
            elif reduction.route == "server":
                parameter.data = self.flat(Elements("value", *where)).view(parameter.shape)
                pointer = parameter.data_ptr() if parameter.numel() else None
            self._views.append((parameter, gradient, pointer, piece.name))


def _base(region: _Region) -> int:
    return region.base


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch; they come in ascending order."""
    joined: list[tuple[int, int]] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor in host memory, writable."""
    return memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
