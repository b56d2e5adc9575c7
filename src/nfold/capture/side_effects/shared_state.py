"""Finds what the code of a model or loss names and all copies of it share: globals, attributes of classes, closures.

Copies of a model are tried before it is trained, so what forward changes there would begin at another value.
"""

import dis
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from nfold.capture.batches.tree import tensors_of
from nfold.capture.side_effects.freezing import attributes, same
from nfold.capture.side_effects.hooks import hooks_of
from nfold.capture.side_effects.module_states import freeze_shared

_FARTHEST = 3
"""Calls from forward to the code that is still looked into."""
_FOREIGN = (sys.stdlib_module_names | {"torch", "numpy", "nfold"}) - {"__main__"}

_CALLED = ("__getitem__", "__getitems__", "__call__", "forward")

Places = list[tuple[str, Callable[[], Any]]]
"""(name, function that reads what is there now)."""


def places_of_model(model: nn.Module) -> Places:
    """Return what the forward functions, hooks and callables of a model can reach. O(names in their code)."""
    reach = _Reach(own=frozenset(type(each) for each in model.modules() if _is_users(type(each).__module__)))
    for module in model.modules():
        reach.look_at(getattr(type(module), "forward", None), type(module))
        for value in (*vars(module).values(), *hooks_of(module)):
            reach.look_at(value, type(module))
    return reach.places()


def places_named_by(values: Iterable[Any]) -> Places:
    """Return what the code of functions, and of objects that are called or indexed, can reach."""
    reach = _Reach()
    for value in values:
        for name in _CALLED:
            reach.look_at(getattr(type(value), name, None), type(value))
        reach.look_at(value, type(value))
    return reach.places()


def places_of_loss(loss: Callable[..., Any]) -> Places:
    """Return what a loss can reach, and the modules that its object holds."""
    if isinstance(loss, nn.Module):
        return places_of_model(loss)
    reach = _Reach()
    reach.look_at(loss, object)
    held = attributes(loss.__self__ if inspect.ismethod(loss) else loss)
    modules = [
        (name, functools.partial(held.get, name)) for name, value in held.items() if isinstance(value, nn.Module)
    ]
    return [*reach.places(), *modules]


def places_of_optimizer(optimizer: Optimizer) -> Places:
    """Return what the steps and hooks of an optimizer, and of those within it, can reach."""
    reach = _Reach()
    within = [each for value in vars(optimizer).values() for each in (value if isinstance(value, list) else [value])]
    for each in (optimizer, *(inner for inner in within if isinstance(inner, Optimizer))):
        reach.look_at(type(each).step, type(each))
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            for hook in vars(each).get(name, {}).values():  # none where the user's class leaves out super().__init__
                reach.look_at(hook, type(each))
    return reach.places()


class Watch:
    """Remembers the values in shared places from one look to the next.

    Attributes:
        moved: names of the places that changed between looks.
    """

    def __init__(self, find: Callable[[], Places]) -> None:
        self.moved: list[str] = []
        self._find = find
        self._places: Places = []
        self._seen: list[Any] = []

    def tensors(self) -> dict[str, list[torch.Tensor]]:
        """Return the tensors that are in each place now, also those of modules there; none before the first look."""
        return {name: list(_tensors_in(read())) for name, read in self._places}

    def given_gradients(self) -> list[str]:
        """Return the places with weights to which a backward pass has come."""
        found = self.tensors().items()
        return [name for name, held in found if any(isinstance(w, nn.Parameter) and w.grad is not None for w in held)]

    def note(self, names: Iterable[str]) -> None:
        """Count places as changed although no change of their values was seen."""
        self.moved = list(dict.fromkeys((*self.moved, *names)))

    def look(self, *, grows: bool = True) -> None:
        """Compare the places with the last look. The first look comes once all is there that a first call makes.

        Args:
            grows: whether a dict may get more keys, as caches do, without counting as changed.
        """
        self._places = self._places or self._find()
        now = [freeze_shared(read()) for _, read in self._places]
        self._seen = self._seen or now
        pairs = zip(self._places, self._seen, now, strict=True)
        self.note(name for (name, _), one, other in pairs if not same(one, other, grows=grows))
        self._seen = now


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield what training could write to in a place; statistics of batch norm follow from batches alone."""
    if isinstance(value, nn.Module):
        yield from value.parameters()
    else:
        yield from tensors_of(value)


@dataclass
class _Reach:
    """Functions that have been looked into, and the places that they name."""

    own: frozenset[type] = frozenset()
    """Classes of the model's modules: a hook that names one means the module that this model is a copy of."""
    known: set[tuple[int, type]] = field(default_factory=set)
    """Functions, each with the class whose methods it calls."""
    kept: list[Any] = field(default_factory=list)
    """What is known, so that no other object gets its number."""
    spaces: dict[type, list[tuple[Mapping[str, Any], str]]] = field(default_factory=dict)
    calls: dict[type, FunctionType | None] = field(default_factory=dict)
    found: dict[tuple[int, str], tuple[str, Callable[[], Any]]] = field(default_factory=dict)

    def places(self) -> Places:
        return list(self.found.values())

    def look_at(self, value: Any, owner: type, depth: int = 0) -> None:
        """Look into a function, or what calls one.

        Args:
            value: anything.
            owner: the class whose methods it calls.
            depth: calls that lead here.
        """
        if isinstance(value, functools.partial):
            self.look_at(value.func, owner, depth)
        elif isinstance(value, property):
            self.look_at(value.fget, owner, depth)
        elif isinstance(value, (staticmethod, classmethod)):
            self.look_at(value.__func__, owner, depth)
        elif inspect.ismethod(value):
            self.look_at(value.__func__, type(value.__self__), depth)
        elif isinstance(value, FunctionType):
            self._look_into(value, owner, depth)
        elif (call := self._call_of(type(value))) is not None:
            self._look_into(call, type(value), depth)

    def _call_of(self, kind: type) -> FunctionType | None:
        """Return what runs when an object of a class is called."""
        if kind not in self.calls:
            call = inspect.getattr_static(kind, "__call__", None)
            self.calls[kind] = call if isinstance(call, FunctionType) else None
        return self.calls[kind]

    def _look_into(self, function: FunctionType, owner: type, depth: int) -> None:
        if (id(function), owner) in self.known or depth > _FARTHEST or not _is_users(function.__module__):
            return
        self.known.add((id(function), owner))
        self.kept.append(function)
        self._add(function, "", function.__name__, lambda: _kept_by(function))
        names = {name for code in _codes(function.__code__) for name in code.co_names}
        for name in sorted(_globals_of(function) & function.__globals__.keys()):
            self._look_up(function.__globals__, name, name, names, owner, depth)
        self._look_inside(self._spaces(owner), names, owner, depth)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._add(cell, "", name, functools.partial(_content, cell))
            self.look_at(_content(cell), owner, depth + 1)

    def _look_up(
        self, space: Mapping[str, Any], name: str, label: str, names: set[str], owner: type, depth: int
    ) -> None:
        """Look at what a name stands for: a function, the insides of a module or a class, or a value."""
        value = space[name]
        if isinstance(value, (ModuleType, type)):
            if isinstance(value, type):
                self._look_inside(self._spaces(value), names, value, depth + 1)
            elif _is_users(value.__name__):
                self._look_inside([(vars(value), f"{name}.")], names, owner, depth + 1)
        else:
            self._add(space, name, label, functools.partial(space.get, name))
            self.look_at(value, owner, depth + 1)

    def _look_inside(
        self, spaces: list[tuple[Mapping[str, Any], str]], names: set[str], owner: type, depth: int
    ) -> None:
        """Look up those names that are attributes."""
        for space, label in spaces if depth <= _FARTHEST else ():
            for name in sorted(names & space.keys()):
                self._look_up(space, name, f"{label}{name}", names, owner, depth)

    def _spaces(self, kind: type) -> list[tuple[Mapping[str, Any], str]]:
        """Return the attributes of a user's class and of those that it is made from."""
        if kind not in self.spaces:
            users = [each for each in kind.__mro__ if _is_users(each.__module__)]
            self.spaces[kind] = [(vars(each), f"{each.__name__}.") for each in users]
        return self.spaces[kind]

    def _add(self, holder: Any, name: str, label: str, read: Callable[[], Any]) -> None:
        self.kept.append(holder)
        self.found.setdefault((id(holder), name), (label, functools.partial(self._foreign, read)))

    def _foreign(self, read: Callable[[], Any]) -> Any:
        value = read()
        return None if type(value) in self.own else value


def _kept_by(function: FunctionType) -> list[Any]:
    return [vars(function), function.__defaults__, function.__kwdefaults__]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty still
        return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code and the code of functions inside of it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _globals_of(function: FunctionType) -> set[str]:
    """Return the names of globals alone: an attribute may be called like a global that holds all of the data."""
    steps = (step for code in _codes(function.__code__) for step in dis.get_instructions(code))
    return {step.argval for step in steps if "GLOBAL" in step.opname}


def _is_users(module: str | None) -> bool:
    return (module or "").partition(".")[0] not in _FOREIGN
