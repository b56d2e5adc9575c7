"""Writes down what a Python value holds, so that a second look can tell whether it has changed in between."""

import contextlib
import functools
import inspect
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from types import GeneratorType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from nfold.capture.batches.tree import strided_parts

_DEEPEST, _LONGEST = 3, 10_000
"""Nested values, and items of one, that are looked at."""

_PLAIN = (bool, int, float, complex, str, bytes, range, np.generic)

_QUIET = frozenset({"torch", "builtins", "functools", "logging", "threading", "weakref", "pathlib", "_io"})
"""Packages whose objects keep nothing that a forward pass computes with, or only what they have computed before."""

GENERATORS: dict[type, Callable[[Any], Any]] = {
    random.Random: lambda generator: generator.getstate(),
    np.random.Generator: lambda generator: generator.bit_generator.state,
    np.random.RandomState: lambda generator: generator.get_state(legacy=False),
    torch.Generator: lambda generator: generator.get_state(),
}


def freeze(value: Any, depth: int = 0) -> Any:
    """Copy what can change inside a value; what is too deep, too large or not Python's own counts as never changing."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if value is None or isinstance(value, _PLAIN):
        return value
    if type(value) in GENERATORS:
        return freeze(GENERATORS[type(value)](value))
    if inspect.ismethod(value):
        return freeze(value.__self__, depth)
    if depth == _DEEPEST:
        return _Unknown() if is_blind(value) else type(value)
    if isinstance(value, functools.partial):
        return freeze([value.func, value.args, value.keywords], depth)
    return _frozen_parts(value, depth)


def same(one: Any, other: Any, *, grows: bool = False) -> bool:
    """Whether two frozen values are equal.

    Args:
        one: the earlier one.
        other: the later one.
        grows: allow a dict to have more keys than before.
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return bool(one.tolist() == other.tolist() if one.dtype.hasobject else one.tobytes() == other.tobytes())
    if isinstance(one, torch.Tensor):
        return same_tensors(one, other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b, grows=grows) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        kept = one.keys() <= other.keys() if grows else one.keys() == other.keys()
        return kept and all(same(one[key], other[key], grows=grows) for key in one)
    return bool(one == other) or _are_nan(one, other)


def same_tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are equal; NaN equals NaN."""
    if (one.shape, one.dtype, one.layout, one.is_meta) != (other.shape, other.dtype, other.layout, other.is_meta):
        return False
    if one.is_meta:
        return True  # it has no elements
    if one.layout is not torch.strided:
        return all(map(same_tensors, strided_parts(one), strided_parts(other)))
    if torch.equal(one, other):
        return True
    has_nan = one.is_floating_point() or one.is_complex()
    return has_nan and bool(torch.isclose(one, other, rtol=0.0, atol=0.0, equal_nan=True).all())


def _are_nan(one: Any, other: Any) -> bool:
    numbers = (float, complex, np.inexact)
    return isinstance(one, numbers) and isinstance(other, numbers) and one != one and other != other


def attributes(value: Any) -> dict[str, Any]:
    """Return what an object may keep for a module, in its dict and its slots: a counter, a schedule."""
    if isinstance(value, (type, ModuleType, nn.Module)) or _owner(type(value)) in _QUIET:
        return {}
    return own_attributes(value)


def own_attributes(value: Any) -> dict[str, Any]:
    """Return what is in an object's dict and its slots, whosever it is."""
    slots = [(name, each) for base in type(value).__mro__ for name, each in vars(base).items() if _is_slot(each)]
    held: dict[str, Any] = {}
    for name, each in slots:
        with contextlib.suppress(AttributeError):  # nothing is in it; that its class has one of that name says nothing
            held[name] = each.__get__(value)
    return held | getattr(value, "__dict__", {})


def is_quiet(value: Any) -> bool:
    """Whether a value is a lock, a log or the like, from which no result follows."""
    return _owner(type(value)) in _QUIET - {"torch"}


class _Unknown:
    """What cannot be looked at: unlike everything, itself included."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _frozen_parts(value: Any, depth: int) -> Any:
    if is_blind(value):
        return _advance(value, depth)
    held = {name: freeze(item, depth + 1) for name, item in attributes(value).items()}
    items = _items(value, depth)
    return [items, held] if items is not None and held else items if items is not None else held or type(value)


def _items(value: Any, depth: int) -> Any:
    """Return what a container holds; None if it is none, or too large."""
    if not isinstance(value, (list, tuple, deque, set, frozenset, dict)) or len(value) > _LONGEST:
        return None
    if isinstance(value, dict):
        # Not value.items(): a user's dict may do work there, such as importing what it names.
        return {str(key): freeze(item, depth + 1) for key, item in dict.items(value)}
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    return [freeze(item, depth + 1) for item in value]


def _is_slot(attribute: Any) -> bool:
    return inspect.ismemberdescriptor(attribute) and _owner(attribute.__objclass__) not in _QUIET


def is_blind(value: Any) -> bool:
    """Whether a value hands out one thing after another, as an iterator, and no attribute tells how far it is."""
    is_iterator = isinstance(value, Iterator) and not isinstance(value, nn.Module)
    return is_iterator and _owner(type(value)) != "_io" and not attributes(value)  # a file is a log, as a rule


def _advance(iterator: Any, depth: int) -> Any:
    """Say how far an iterator is."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        if frame is None:
            return None
        return [frame.f_lasti, *(freeze(each, depth + 1) for each in (frame.f_locals, iterator.gi_yieldfrom))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            _, arguments, *state = iterator.__reduce__()
    except (TypeError, ValueError):
        return _Unknown()
    return [freeze(each, depth + 1) for each in (*arguments, *state)]


def _owner(kind: type) -> str:
    return kind.__module__.partition(".")[0]
