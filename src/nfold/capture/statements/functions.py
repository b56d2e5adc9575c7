"""Finds the function that a frame executes: it is needed to give it other code."""

from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

_DEEPEST = 4
"""Decorators around a function."""


def functions_of(frame: FrameType) -> list[FunctionType]:
    """Return the functions with a frame's code, where names of its module, its classes or its caller lead to them."""
    code, found = frame.f_code, dict[int, FunctionType]()
    for value in _named(frame):
        for function in _inside(value, code, _DEEPEST):
            found[id(function)] = function
    return list(found.values())


def _named(frame: FrameType) -> Iterator[Any]:
    for value in list(frame.f_locals.values()):
        for each in type(value).__mro__:
            yield from list(vars(each).values())
        yield from vars(value).values() if hasattr(value, "__dict__") else ()
    for value in list(frame.f_globals.values()):
        yield value
        if isinstance(value, type):
            yield from list(vars(value).values())
    caller = frame.f_back
    if caller is not None:
        yield from list(caller.f_locals.values())


def _inside(value: Any, code: CodeType, depth: int) -> Iterator[FunctionType]:
    """Yield the functions with some code that a value is, or that it wraps."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if not isinstance(value, FunctionType) or depth == 0:
        return
    if value.__code__ is code:
        yield value
        return
    for cell in value.__closure__ or ():
        try:
            yield from _inside(cell.cell_contents, code, depth - 1)
        except ValueError:
            continue  # it is empty
    yield from _inside(getattr(value, "__wrapped__", None), code, depth - 1)
