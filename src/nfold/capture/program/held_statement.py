"""Statements of the user's as a part of a program: bound to a model, they compute with its own modules and weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.tree import shapes_text
from nfold.errors import ProgramError


class Unbound:
    """Stands for a variable that was never set, as in a branch that is not taken."""


UNBOUND = Unbound()


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Statements of the user's that stay one operator."""

    name: str
    """Their file and lines: `net.py:31-33`."""
    function: Callable[..., Any]
    """Takes the variables by name."""
    inputs: tuple[str, ...]
    modules: Mapping[str, str]
    """Variables that hold modules, with their paths."""
    uses: tuple[str, ...]
    """Paths of the modules, parameters and buffers that they may use."""
    outputs: tuple[str, ...] | None
    """Variables to return; None: what the statements return."""
    writes: bool
    """Whether they may write to what they are given."""
    draws: bool
    """Whether they may draw random numbers."""
    kinds: tuple[Any, ...] = ()
    """What the outputs were in trials: see `kind_of`; one that was not set, or that nobody uses, may be anything."""

    def bind(self, model: nn.Module) -> "Statement":
        """Return the statements as a module that has the weights which they use."""
        return Statement(self, model)

    def checking(self, used: set[int]) -> "Held":
        """Return the same, with the kinds of those outputs alone that others use, or take for nothing."""
        kinds = tuple(kind if index in used or kind is type(None) else Unbound for index, kind in enumerate(self.kinds))
        return replace(self, kinds=kinds)

    def parts(self, result: Any) -> tuple[Any, ...]:
        """Return the outputs one by one."""
        if self.outputs is not None:
            return tuple(result.get(name, UNBOUND) for name in self.outputs)
        return result if type(result) is tuple and len(result) != 1 else (result,)


class Statement(nn.Module):
    """A module that executes statements with the variables that they use."""

    held: Held
    given: dict[str, nn.Module]
    """Not among its own modules: those have more weights than are used."""

    def __init__(self, held: Held, model: nn.Module) -> None:
        super().__init__()
        self.__dict__.update(held=held, given={name: model.get_submodule(path) for name, path in held.modules.items()})
        for index, path in enumerate(held.uses):
            owner, _, name = path.rpartition(".")
            value = getattr(model.get_submodule(owner), name) if name else model
            if isinstance(value, nn.Module):
                self.add_module(str(index), value)
            elif isinstance(value, nn.Parameter):
                self.register_parameter(str(index), value)

    def forward(self, *values: Any) -> tuple[Any, ...]:
        """Execute the statements and return their outputs.

        Raises:
            ProgramError: an output is of another kind than in trials; the code that uses it was not followed for that.
        """
        held = self.held
        with_names = dict(zip(held.inputs, map(as_read_only, values), strict=True))
        found = held.parts(held.function(**with_names, **self.given))
        if held.kinds and (other := _other_kind(held, found)):
            raise ProgramError(other)
        return found


def _refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise ProgramError(
        f"statements that decide on values of a tensor change a {type(self).__mro__[1].__name__} that others use, and "
        "those may compute elsewhere. Make a new one, and give that"
    )


class _ReadOnlyList(list[Any]):
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse


class _ReadOnlyDict(dict[Any, Any]):
    update = pop = popitem = clear = setdefault = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse


def as_read_only(value: Any) -> Any:
    """Return a value that statements cannot change without being noticed."""
    if isinstance(value, list):
        return _ReadOnlyList(map(as_read_only, value))
    if type(value) is dict:
        return _ReadOnlyDict({key: as_read_only(each) for key, each in value.items()})
    return tuple(map(as_read_only, value)) if type(value) is tuple else value


def kind_of(value: Any) -> Any:
    """Return what code that uses a value may decide on, its sizes apart."""
    return (torch.Tensor, value.ndim, value.dtype) if isinstance(value, torch.Tensor) else type(value)


def _other_kind(held: Held, found: Sequence[Any]) -> str:
    """Say which output is of another kind than in trials; empty if none is."""
    if len(found) != len(held.kinds):
        return f"{held.name} gives {len(found)} values, and gave {len(held.kinds)} when nfold tried the program"
    for index, (value, usual) in enumerate(zip(found, held.kinds, strict=True)):
        if usual is not Unbound and kind_of(value) != usual:
            name = held.outputs[index] if held.outputs else "a result"
            before = f"a tensor of {usual[1]} dimensions, {usual[2]}" if isinstance(usual, tuple) else usual.__name__
            return (
                f"{held.name} gives {name} as {shapes_text(value)}, and gave {before} when nfold tried the program: "
                "what comes after was followed for that alone. Let it give the same kind in every case"
            )
    return ""
