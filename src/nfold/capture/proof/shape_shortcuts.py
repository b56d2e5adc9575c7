"""Results of some operators by their shapes alone, for which torch would follow a dozen operators of its own each.

Where anything is unusual there is no shortcut, and torch computes the shapes: a tensor that is real, types that are
mixed, sizes that must be found equal. Deep nets call the same few layers hundreds of times.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch._subclasses.fake_tensor import FakeTensor

_SHORTCUTS: dict[Any, Callable[[dict[str, Any]], Any]] = {}


def shortcut(function: torch._ops.OpOverload, arguments: dict[str, Any]) -> Any:
    """Return the results of an operator as torch's fake tensors; None where torch must compute them.

    Args:
        function: of ATen.
        arguments: by name.
    """
    known = _SHORTCUTS.get(function)
    return known(arguments) if known else None


def _of(*functions: torch._ops.OpOverload) -> Callable[[Callable[[dict[str, Any]], Any]], None]:
    return lambda shape: _SHORTCUTS.update(dict.fromkeys(functions, shape))


@_of(torch.ops.aten._native_batch_norm_legit.default)
def _batch_norm(arguments: dict[str, Any]) -> Any:
    """Return the normalised input, and a mean and a deviation for each channel."""
    given = arguments["input"]
    others = [arguments[name] for name in ("weight", "bias", "running_mean", "running_var")]
    channels = given.shape[1] if given.ndim > 1 else None
    if not arguments["training"] or not _is_usual(given) or not isinstance(channels, int):
        return None
    if any(each is not None and (each.dtype != given.dtype or each.shape != (channels,)) for each in others):
        return None
    return torch.empty_like(given), given.new_empty((channels,)), given.new_empty((channels,))


@_of(torch.ops.aten.native_layer_norm.default)
def _layer_norm(arguments: dict[str, Any]) -> Any:
    """Return the normalised input, and a mean and a deviation for each row of its last dimensions."""
    given, within = arguments["input"], len(arguments["normalized_shape"])
    others = [arguments[name] for name in ("weight", "bias")]
    if not _is_usual(given) or any(each is not None and each.dtype != given.dtype for each in others):
        return None
    shape = (*given.shape[: given.ndim - within], *[1] * within)
    return torch.empty_like(given), given.new_empty(shape), given.new_empty(shape)


@_of(torch.ops.aten.addmm.default)
def _addmm(arguments: dict[str, Any]) -> Any:
    """Return as many rows as the one matrix has, and as many columns as the other."""
    bias, one, other = (arguments[name] for name in ("self", "mat1", "mat2"))
    is_alike = isinstance(one, FakeTensor) and bias.dtype == one.dtype == other.dtype
    if not is_alike or one.layout is not torch.strided or other.layout is not torch.strided:
        return None
    if bias.ndim != 1 or not _is_same(one.shape[1], other.shape[0]) or not _is_same(bias.shape[0], other.shape[1]):
        return None
    return one.new_empty((one.shape[0], other.shape[1]))


@_of(torch.ops.aten.relu.default)
def _pointwise(arguments: dict[str, Any]) -> Any:
    """Return what is as large as the only argument."""
    return torch.empty_like(arguments["self"]) if _is_usual(arguments["self"]) else None


@_of(torch.ops.aten.cat.default)
def _cat(arguments: dict[str, Any]) -> Any:
    """Return what is as long as all parts together, where they are known to fit and lie in memory as is usual."""
    parts: Sequence[torch.Tensor] = arguments["tensors"]
    first, dim = parts[0], arguments["dim"]
    if not all(_is_usual(each) and each.dtype == first.dtype and each.ndim == first.ndim for each in parts):
        return None
    dim, shape = dim % max(first.ndim, 1), list(first.shape)
    lengths = [each.shape[dim] for each in parts]
    if not all(isinstance(each, int) for each in lengths):
        return None
    for each in parts[1:]:
        if not all(place == dim or _is_same(*sizes) for place, sizes in enumerate(zip(shape, each.shape, strict=True))):
            return None
    shape[dim] = sum(lengths)
    return first.new_empty(shape)


def _is_usual(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is a stand-in of floating-point numbers, dense and in the order of its dimensions."""
    is_plain = isinstance(tensor, FakeTensor) and tensor.layout is torch.strided and tensor.is_floating_point()
    return is_plain and is_contiguous_or_false(tensor)  # which guards nothing


def _is_same(one: Any, other: Any) -> bool:
    """Tell whether two sizes are the same for every number of samples, without a guard on it."""
    if isinstance(one, torch.SymInt) and isinstance(other, torch.SymInt):
        return bool(one.node.expr == other.node.expr)
    return isinstance(one, int) and isinstance(other, int) and one == other
