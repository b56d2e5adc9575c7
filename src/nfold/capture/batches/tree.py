"""Nested tuples, lists, dicts and dataclasses of tensors: what datasets give, models return, operators pass around."""

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

_ATOMS = frozenset({type(None), bool, int, float, str})
"""What nothing is inside of."""


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor inside a value, in a fixed order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif type(value) not in _ATOMS:
        for _, item in _items(value):
            yield from tensors_of(item)


def may_list_samples(value: Any, size: int) -> bool:
    """Tell whether a list or tuple inside a value has as many entries as there are samples: it may have one of each.

    Then no first dimension is known to count them: of four samples, each may have a box of four numbers.
    """
    if type(value) in _ATOMS or isinstance(value, torch.Tensor):
        return False
    if isinstance(value, (list, tuple)) and len(value) == size:
        return True
    return any(may_list_samples(item, size) for _, item in _items(value))


def strided_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense tensors that a tensor consists of: itself, or where its numbers stand and what they are."""
    if tensor.layout is torch.strided:
        return [tensor]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor.values()] if tensor.layout is torch.jagged else []


def num_bytes(value: Any) -> int:
    """Return the number of bytes of all tensors inside a value."""
    return sum(part.nbytes for tensor in tensors_of(value) for part in strided_parts(tensor))


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], torch.Tensor]]:
    """Yield every tensor with the keys that lead to it."""
    if isinstance(value, torch.Tensor):
        yield path, value
    else:
        for key, item in _items(value):
            yield from paths_of(item, (*path, key))


def paired(whole: Any, parts: Iterable[Any]) -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Yield each tensor of a value with those in its place of other values, as far as these have one there."""
    found = [dict(paths_of(part)) for part in parts]
    for path, tensor in paths_of(whole):
        yield tensor, [part[path] for part in found if path in part]


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """Return the same structure with each tensor replaced by what the function returns for it."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return with_items(value, {key: map_tensors(function, item) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(function, item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(function, item) for item in value)
    if _is_dataclass(value):
        changed = copy.copy(value)
        for key, item in _items(value):
            object.__setattr__(changed, key, map_tensors(function, item))  # it may be frozen
        return changed
    return value


def with_items(like: dict[Any, Any], items: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a dict of the same class, such as a library has for its models' outputs, with other values."""
    if type(like) is not dict:
        with contextlib.suppress(Exception):  # it cannot be copied, or not be written to
            changed = copy.copy(like)
            for key, item in items.items():
                changed[key] = item
            return changed
    return dict(items)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what a structure holds, with the key, index or name of each."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)
    elif _is_dataclass(value):
        yield from ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def shapes_text(value: Any) -> str:
    """Describe a value for people: `float32[8, 10]`, or the same for each part of it."""
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shapes_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(shapes_text(item) for item in value) + ")"
    if _is_dataclass(value):
        return f"{type(value).__name__}({', '.join(f'{key}={shapes_text(item)}' for key, item in _items(value))})"
    return type(value).__name__


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a type without the prefix: `float32`."""
    return str(dtype).removeprefix("torch.")
