"""What an optimizer or a schedule holds, wherever it holds it, so that two of them can be compared."""

import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from nfold.capture.side_effects.freezing import GENERATORS, freeze, is_blind, is_quiet, own_attributes, same_tensors

Path = tuple[str, ...]
Held = dict[Path, Any]
"""By where they are: tensors, numbers, texts, and in words what else there is."""

_PLUMBING = frozenset(
    {
        *("step", "_opt_called", "_zero_grad_profile_name", "_warned_capturable_if_run_uncaptured"),
        "_need_device_dtype_check_for_fused",
        *("_initial_step", "_get_lr_called_within_step", "_is_initial"),
    }
)
"""What torch keeps in optimizers and schedules for itself, and nothing is computed with."""
_ATOMS = (bool, int, float, complex, str, bytes, np.generic, torch.dtype, torch.device, type(None))


def held_by(owner: Any, parameters: Sequence[torch.Tensor], *, but: Sequence[Any] = ()) -> Held:
    """Return all that an object keeps, its parameters by their numbers. Nothing is copied.

    Args:
        owner: an optimizer or a schedule.
        parameters: that it was given.
        but: objects that are not looked into.
    """
    walk = _Walk({id(each): f"parameter {index}" for index, each in enumerate(parameters)}, but)
    return dict(walk.leaves(owner, ()))


def differences(one: Held, other: Held, same: Callable[[Any, Any], bool] | None = None) -> list[str]:
    """Return in words what of one is not, or not the same, in another."""
    same = same or alike
    found = [path for path in one if path not in other or not same(one[path], other[path])]
    found += [path for path in other if path not in one]
    return list(dict.fromkeys(map(_told, found)))


def alike(one: Any, other: Any) -> bool:
    """Whether two values are the same to the last bit. A number equals a tensor without dimensions that holds it."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.layout is not torch.strided or other.layout is not torch.strided:
            one, other = one.to_dense(), other.to_dense()
        if one.numel() == other.numel() == 1:
            one, other = one.reshape(()), other.reshape(())
        return same_tensors(one, other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, (torch.Tensor, np.ndarray)) or isinstance(other, (torch.Tensor, np.ndarray)):
        return False
    return bool(one == other) or (one != one and other != other)


class _Walk:
    """Goes through an object: into each other object once, and into containers wherever they are."""

    def __init__(self, names: dict[int, str], but: Sequence[Any]) -> None:
        self._names, self._seen = names, {id(each) for each in but}
        self._alive: list[Any] = []
        """So that no other object gets the number of one that was made for the walk."""
        self._inside: set[int] = set()
        """Containers that the walk is in: a list may hold itself."""

    def leaves(self, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        """Yield what is kept in a value and where."""
        if id(value) in self._names:
            yield path, self._names[id(value)]
        elif isinstance(value, (torch.Tensor, np.ndarray, *_ATOMS)):
            yield path, value
        elif isinstance(value, (dict, list, tuple, deque)):
            if id(value) not in self._inside:
                self._inside.add(id(value))
                yield from self._within(value, path)
                self._inside.remove(id(value))
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            self._alive.append(value)
            yield from self._within(value, path)

    def _within(self, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        if type(value) in GENERATORS:
            yield from self.leaves(GENERATORS[type(value)](value), path)
        elif isinstance(value, dict):
            yield from self._items(value, path)
        elif isinstance(value, (list, tuple, deque)):
            for index, each in enumerate(value):
                yield from self.leaves(each, (*path, f"[{index}]"))
        elif isinstance(value, (set, frozenset)):
            yield path, sorted(repr(each) for each in value if isinstance(each, _ATOMS))
        elif inspect.ismethod(value):
            yield path, value.__func__.__qualname__
            yield from self.leaves(value.__self__, path)
        elif isinstance(value, functools.partial):
            yield from self.leaves([value.func, value.args, value.keywords], path)
        elif isinstance(value, FunctionType):
            yield from self._function(value, path)
        elif isinstance(value, (type, ModuleType, BuiltinFunctionType)):
            yield path, getattr(value, "__name__", "")
        elif is_quiet(value):
            yield path, type(value).__qualname__
        elif is_blind(value):
            yield path, repr(freeze(value))  # how far an iterator is
        else:
            yield from self._object(value, path)

    def _items(self, value: dict[Any, Any], path: Path) -> Iterator[tuple[Path, Any]]:
        for key, each in dict.items(value):
            name = self._names.get(id(key)) or (repr(key) if isinstance(key, (*_ATOMS, tuple)) else type(key).__name__)
            yield (*path, f"[{name}]"), None
            yield from self.leaves(each, (*path, f"[{name}]"))

    def _function(self, value: FunctionType, path: Path) -> Iterator[tuple[Path, Any]]:
        yield path, value.__qualname__
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                held = cell.cell_contents
            except ValueError:
                continue  # it has no value yet
            yield from self.leaves(held, (*path, f"({name})"))

    def _object(self, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        yield path, type(value).__qualname__
        is_torchs = isinstance(value, (Optimizer, LRScheduler))
        for name, each in own_attributes(value).items():
            if is_torchs and name in _PLUMBING:
                continue
            if is_torchs and name.startswith("_optimizer_"):  # hooks by numbers that no other optimizer has
                each = list(each.values())
            if is_torchs and name == "defaults":  # loading a state adds this one
                each = {key: value for key, value in each.items() if key != "differentiable"}
            yield from self.leaves(each, (*path, f".{name}"))


def _told(path: Path) -> str:
    """Name something by its attribute, and by its key where torch keeps it."""
    text, is_inside = "", False
    for part in path:
        if part[0] == "[" and not is_inside:
            is_inside = True
        if not is_inside:
            text += part
    keys = [part for part in path if part[0] == "[" and part[1:2] in "'\""]
    return (text + (f"[..]{keys[-1]}" if text.rpartition(".")[2] in ("state", "param_groups") and keys else "")).lstrip(
        "."
    )
