"""Nested tuples, lists and dicts of tensors: what datasets give, models return and operators pass around."""

from collections.abc import Callable, Iterator
from typing import Any

import torch


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor inside a value, in a fixed order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], torch.Tensor]]:
    """Yield every tensor with the keys that lead to it."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from paths_of(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from paths_of(item, (*path, index))


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """Return the same structure with every tensor replaced."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: map_tensors(function, item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(function, item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(function, item) for item in value)
    return value


def shapes_text(value: Any) -> str:
    """Describe a value for people: `float32[8, 10]`, or the same for each part of it."""
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shapes_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(shapes_text(item) for item in value) + ")"
    return type(value).__name__


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a type without the prefix: `float32`."""
    return str(dtype).removeprefix("torch.")
