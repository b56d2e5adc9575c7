"""Pieces of parameters in the hands of an optimizer, and where their values and gradients lie."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from nfold.capture.optimizers.touched_rows import at_own_begin
from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.core.tasks import Elements
from nfold.runtime.parameters.buffers import Buffers, Piece, pieces


@dataclass(frozen=True, slots=True)
class Held:
    """A piece of a parameter in the hands of one optimizer."""

    piece: Piece
    name: str
    """What the user calls the parameter."""
    tensor: nn.Parameter
    home: torch.Tensor | None = None
    """The bucket's memory, from which values are sent."""
    gradient: torch.Tensor | None = None
    sparse_dims: int = 0
    """See `Parameter.sparse_dims`."""
    is_apart: bool = False
    """Whether the tensor and its gradient have memory of their own: a kernel may compute other last bits where a tensor
    begins or lies otherwise than on one device."""


def sparse_gradients(graph: ModelGraph) -> dict[str, int]:
    """Return the parameters whose gradients are sparse, and in how many dimensions."""
    return {each.name: each.sparse_dims for each in graph.parameters if each.sparse_dims}


def held_by(
    reduction: Reduction,
    start: int,
    stop: int,
    graph: ModelGraph,
    buffers: Buffers,
    parameters: Mapping[str, nn.Parameter],
    sizes: Mapping[str, int],
) -> list[Held]:
    """Return the pieces in elements [start, stop) of a bucket for one optimizer."""
    rows = {parameter.name: parameter.rows for parameter in graph.parameters if parameter.rows}
    names = {name: rows[name].parameter if name in rows else name for name in reduction.parameters}
    dims = sparse_gradients(graph) if reduction.route != "local" else {}
    if reduction.route != "server":
        return [
            Held(piece, names[piece.name], parameters[piece.name], sparse_dims=dims.get(piece.name, 0))
            for piece in pieces(reduction, sizes)
        ]
    whole = graph.update_scope == "parameter"
    if reduction.fraction_bits is not None:
        places = pieces(reduction, sizes, start, stop)
        return [_apart(reduction, piece, names[piece.name], buffers, parameters[piece.name]) for piece in places]
    return [
        _served(
            reduction,
            piece,
            names[piece.name],
            buffers,
            parameters[piece.name].shape if whole else torch.Size([piece.stop - piece.start]),
            dims.get(piece.name, 0),
        )
        for piece in pieces(reduction, sizes, start, stop)
    ]


def _served(
    reduction: Reduction, piece: Piece, name: str, buffers: Buffers, shape: torch.Size, sparse_dims: int
) -> Held:
    """A parameter over the bucket's own memory: updating it changes what is sent back."""
    where = (reduction.name, piece.offset, piece.offset + piece.stop - piece.start)
    home = buffers.flat(Elements("value", *where)).view(shape)
    gradient = buffers.flat(Elements("gradient", *where)).view(shape)
    if sparse_dims:
        home = at_own_begin(home)
    tensor = nn.Parameter(home)
    tensor.grad = gradient
    return Held(piece, name, tensor, home, gradient, sparse_dims)


def _apart(reduction: Reduction, piece: Piece, name: str, buffers: Buffers, parameter: nn.Parameter) -> Held:
    """A whole parameter as it lies on one device; its values are copied to the bucket when they are new."""
    where = (reduction.name, piece.offset, piece.offset + piece.stop - piece.start)
    home, gradient = (buffers.flat(Elements(kind, *where)).view(parameter.shape) for kind in ("value", "gradient"))
    tensor = nn.Parameter(torch.empty_like(parameter, requires_grad=False).copy_(home))
    return Held(piece, name, tensor, home, gradient, is_apart=True)


def shaped(tensor: torch.Tensor, held: Held) -> torch.Tensor:
    """Return a piece's flat state in its shape."""
    part = tensor.view(held.tensor.shape)
    if part.device == held.tensor.device and part.stride() == held.tensor.stride():
        return part
    # Where the parameter is, and in its order in memory, as the optimizer made it: fused ones go by that.
    return torch.empty_like(held.tensor, dtype=tensor.dtype, requires_grad=False).copy_(part)
