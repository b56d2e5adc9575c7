"""Finds what an object holds or names that a call of it may move: generators of its own, iterators, counters.

What such a call gives depends on the calls before it, which ranks share out, and which a run that goes on has not made.
"""

import functools
import inspect
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from nfold.capture.side_effects.freezing import GENERATORS, freeze, is_blind, is_quiet, own_attributes, same
from nfold.capture.side_effects.shared_state import places_named_by
from nfold.program import is_library

_DEEPEST, _LONGEST, _MOST = 6, 100, 5_000
"""Objects in objects, and objects of a container and in all, that are looked at: what is longer is data."""
_OF_MODULES = frozenset(vars(nn.Module()))
_NUMBERS = (bool, int, float, np.integer, np.floating)
_INERT = (torch.Tensor, np.ndarray, str, bytes, type, ModuleType, BuiltinFunctionType, random.SystemRandom)

State = list[Any]


@dataclass(frozen=True, slots=True)
class Mover:
    """A generator, iterator or counter that a call may move."""

    name: str
    """Where it is, as its owner's code would say it."""
    kind: str
    """`generator`, `iterator` or `counter`."""
    read: Callable[[], Any]
    """Returns where it is now."""


class Moving:
    """The movers of some objects, and the position of each."""

    def __init__(self, owners: Iterable[Any], *, counters: bool = True) -> None:
        """Look. Milliseconds.

        Args:
            owners: data sets, functions, modules.
            counters: whether numbers count that users' objects keep.
        """
        self._movers = [each for each in _Walk().of(owners) if counters or each.kind != "counter"]

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._movers)

    @property
    def draws(self) -> bool:
        """Whether there is anything but counters among them."""
        return any(each.kind != "counter" for each in self._movers)

    def state(self) -> State:
        """Return the positions of all movers. 1 to 20 us for each."""
        return [each.read() for each in self._movers]

    def moved(self, before: State) -> list[Mover]:
        """Return the movers that are at other positions than before. Up to 100 us for each."""
        pairs = zip(self._movers, before, self.state(), strict=True)
        return [each for each, old, new in pairs if not same(old, new)]


class _Walk:
    """Goes into each object once: into what it holds, then into what its code names."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}
        """Objects by number, so that no other gets the number of one that is gone."""
        self._called: list[Any] = []
        """Those whose code has not been looked at."""

    def of(self, owners: Iterable[Any]) -> Iterator[Mover]:
        for owner in owners:
            yield from self._within(owner, "", 0)
        while self._called:
            called, self._called = self._called, []
            for name, read in places_named_by(called):
                yield from self._held(read(), name, read, True, 1)

    def _held(self, value: Any, name: str, read: Callable[[], Any], is_own: bool, depth: int) -> Iterator[Mover]:
        """Yield the movers in what is kept in a place.

        Args:
            value: what is there.
            name: of the place.
            read: returns what is there by then.
            is_own: whether a number there is the user's.
            depth: objects around it.
        """
        if isinstance(value, _NUMBERS):
            if is_own:
                yield Mover(name, "counter", read)
        else:
            yield from self._within(value, name, depth)

    def _within(self, value: Any, name: str, depth: int) -> Iterator[Mover]:
        if value is None or isinstance(value, _INERT) or id(value) in self._seen:
            return
        if depth > _DEEPEST or len(self._seen) >= _MOST:
            return
        self._seen[id(value)] = value
        generator = next((state for kind, state in GENERATORS.items() if isinstance(value, kind)), None)
        if generator is not None:
            yield Mover(name, "generator", lambda: freeze(generator(value)))
        elif isinstance(value, (dict, list, tuple, set, frozenset, deque)):
            yield from self._items(value, name, depth) if len(value) <= _LONGEST else ()
        elif inspect.ismethod(value):
            self._called.append(value)
            yield from self._within(value.__self__, name, depth)
        elif isinstance(value, functools.partial):
            yield from self._within([value.func, value.args, value.keywords], name, depth)
        elif isinstance(value, FunctionType):
            self._called.append(value)
        elif is_blind(value):
            state = freeze(value)
            if same(state, state):  # else it does not say how far it is
                yield Mover(name, "iterator", functools.partial(freeze, value))
        elif not is_quiet(value):
            yield from self._object(value, name, depth)

    def _items(self, value: Any, name: str, depth: int) -> Iterator[Mover]:
        """A list of numbers is data; numbers by names may count."""
        if isinstance(value, dict):
            for key, each in list(dict.items(value)):
                read = functools.partial(dict.get, value, key)
                yield from self._held(each, f"{name}[{key!r}]", read, True, depth + 1)
            return
        for index, each in enumerate(value):
            if not isinstance(each, _NUMBERS):
                yield from self._within(each, f"{name}[{index}]", depth + 1)

    def _object(self, value: Any, name: str, depth: int) -> Iterator[Mover]:
        self._called.append(value)
        around, is_own = f"{name}." if name else "", not _is_library(type(value))
        for attribute, each in list(own_attributes(value).items()):
            if isinstance(value, nn.Module) and attribute in _OF_MODULES:
                continue
            read = functools.partial(_attribute, value, attribute)
            yield from self._held(each, f"{around}{attribute}", read, is_own, depth + 1)
        for child, module in value._modules.items() if isinstance(value, nn.Module) else ():
            yield from self._within(module, f"{around}{child}", depth)


def _attribute(owner: Any, name: str) -> Any:
    return own_attributes(owner).get(name)


def _is_library(kind: type) -> bool:
    """Whether a class is a library's, which counts for itself."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and is_library(file)
