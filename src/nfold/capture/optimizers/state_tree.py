"""Turns what a state_dict() gives into plain JSON and named tensors, and back, so that no pickle is needed to keep it.

None, True, 3, "text", 0.5           themselves
inf, -inf, nan                       {"float": "inf"}
[a, b]                               [a, b]
(a, b)                               {"tuple": [a, b]}
{0: a, "lr": b}                      {"dict": [[0, a], ["lr", b]]}
tensor                               {"tensor": its name}, and its strides where its memory has another order
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

HELD = frozenset(
    {
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8),
        *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
    }
)
"""Types of tensors that a file (safetensors) can hold."""


class CannotHold(Exception):
    """A checkpoint cannot hold a value; says which one, and where it is."""


@dataclass(slots=True)
class StateTree:
    """A value as JSON, and the tensors in it."""

    plain: Any
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """By the names that `plain` has for them."""


def to_tree(value: Any) -> StateTree:
    """Take a value apart. Tensors are not copied.

    Raises:
        CannotHold: something in it is neither a tensor nor plain.
    """
    tree = StateTree(None)
    tree.plain = _plain(value, (), tree.tensors)
    return tree


def from_tree(plain: Any, read: Callable[[str], torch.Tensor]) -> Any:
    """Put a value together again.

    Args:
        plain: what `to_tree` made, as JSON gives it back.
        read: returns a tensor by its name.
    """
    if isinstance(plain, list):
        return [from_tree(each, read) for each in plain]
    if not isinstance(plain, Mapping):
        return plain
    if "float" in plain:
        return float(plain["float"])
    if "tuple" in plain:
        return tuple(from_tree(each, read) for each in plain["tuple"])
    if "dict" in plain:
        return {from_tree(key, read): from_tree(each, read) for key, each in plain["dict"]}
    tensor = read(plain["tensor"])
    if "stride" not in plain:
        return tensor
    return torch.empty_strided(tensor.shape, plain["stride"], dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def why_unheld(value: torch.Tensor) -> str:
    """Say why a file of weights cannot hold a tensor; empty if it can."""
    if value.layout is not torch.strided:
        return "a sparse tensor"
    if value.dtype not in HELD:
        return f"a tensor of {value.dtype}"
    # A subclass (a quantized weight) may hold more than its values.
    return "" if type(value) in (torch.Tensor, torch.nn.Parameter) else f"a {type(value).__name__}"


def _plain(value: Any, path: tuple[Any, ...], tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return _named(value, path, tensors)
    if isinstance(value, dict):
        return {"dict": [[_key(key, path), _plain(each, (*path, key), tensors)] for key, each in value.items()]}
    if type(value) in (list, tuple, torch.Size):
        items = [_plain(each, (*path, index), tensors) for index, each in enumerate(value)]
        return items if type(value) is list else {"tuple": items}
    if value is None or isinstance(value, (bool, int, str)):
        # Enumerations and the like are read back as what they are made of, which is their value.
        return value if type(value) in (type(None), bool, int, str) else _base(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    raise CannotHold(f"{told_path(path)} is {_told(value)}")


def _base(value: int | str | None) -> int | str | None:
    return str.__str__(value) if isinstance(value, str) else int(value or 0)


def _key(key: Any, path: tuple[Any, ...]) -> Any:
    if isinstance(key, torch.Tensor) or not (key is None or isinstance(key, (bool, int, str, float, tuple))):
        raise CannotHold(f"{told_path(path)} has {_told(key)} as a key")
    return _plain(key, path, {})


def _named(value: torch.Tensor, path: tuple[Any, ...], tensors: dict[str, torch.Tensor]) -> Any:
    if why := why_unheld(value):
        raise CannotHold(f"{told_path(path)} is {why}")
    name = ".".join(map(str, path)) or "value"
    while name in tensors:  # of the keys 0 and "0"
        name += "_"
    tensors[name] = value.detach()
    return {"tensor": name} if value.is_contiguous() else {"tensor": name, "stride": _dense_stride(value)}


def _dense_stride(value: torch.Tensor) -> list[int]:
    return list(torch.empty_like(value, memory_format=torch.preserve_format).stride())


def told_path(path: tuple[Any, ...]) -> str:
    """Write where something is as Python would."""
    return "".join(f"[{key!r}]" for key in path)


def _told(value: Any) -> str:
    if callable(value) and hasattr(value, "__name__") and not isinstance(value, type):
        return f"a function ({value.__name__})"
    return f"a {type(value).__name__}"
