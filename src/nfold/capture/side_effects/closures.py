"""Functions of a copied model that still mean the model they were made for.

`copy.deepcopy` keeps a function as it is. A hook such as `lambda m, i, o: self.kept.append(o)` would fill the
original's list when the copy runs.
"""

import functools
import types
from typing import Any

from torch import nn

_DEEPEST = 3
"""Containers in an attribute, and functions in a function."""


def rebind_closures(model: nn.Module, copied: dict[int, Any]) -> None:
    """Let functions that a copy holds, as hooks or attributes, mean the copy where they meant the original.

    Args:
        model: the copy; is changed in place.
        copied: what `deepcopy` has copied, by the id of the original; cells are added.
    """
    for module in model.modules():
        for name, value in vars(module).items():
            if (bound := _rebound(value, copied)) is not value:
                vars(module)[name] = bound


def _rebound(value: Any, copied: dict[int, Any], depth: int = 0) -> Any:
    """Return the value; a new one only if it, or a function in it that cannot be put in place, means the original."""
    if depth > _DEEPEST:
        return value
    within = functools.partial(_rebound, copied=copied, depth=depth + 1)
    if isinstance(value, types.FunctionType):
        return _rebound_function(value, copied, depth)
    if isinstance(value, functools.partial) and (function := within(value.func)) is not value.func:
        return functools.partial(function, *value.args, **value.keywords)
    if type(value) is tuple and any(within(each) is not each for each in value):
        return tuple(map(within, value))
    if isinstance(value, (dict, list)):
        for key, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if (bound := within(each)) is not each:
                value[key] = bound
    return value


def _rebound_function(function: types.FunctionType, copied: dict[int, Any], depth: int) -> types.FunctionType:
    cells = tuple(_rebound_cell(each, copied, depth) for each in function.__closure__ or ())
    if all(new is old for new, old in zip(cells, function.__closure__ or (), strict=True)):
        return function
    bound = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    bound.__kwdefaults__, bound.__qualname__ = function.__kwdefaults__, function.__qualname__
    bound.__dict__.update(function.__dict__)
    return bound


def _rebound_cell(cell: types.CellType, copied: dict[int, Any], depth: int) -> types.CellType:
    """Return the cell, or the one in its stead: the same for all functions that share it."""
    known: types.CellType | None = copied.get(id(cell))
    if known is not None:
        return known
    try:
        held = cell.cell_contents
    except ValueError:  # nothing is bound yet
        return cell
    function = isinstance(held, types.FunctionType)
    new = _rebound(held, copied, depth + 1) if function else copied.get(id(held), held)
    return cell if new is held else copied.setdefault(id(cell), types.CellType(new))
