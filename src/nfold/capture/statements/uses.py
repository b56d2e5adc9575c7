"""Finds what statements may use of a module of the user's: whoever computes them must have these weights."""

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn

from nfold.capture.program.program_graph import dotted
from nfold.capture.statements.effects import attributes_of, why_not_alone, written_variables
from nfold.capture.statements.rewriting import source_of

_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, type(None))
_OF_MODULES = frozenset(dir(nn.Module()))


class Unusable(Exception):
    """Statements use something of a module that other processes do not know."""


def used_of_module(module: nn.Module, path: str, attributes: set[str] | None) -> Iterator[str]:
    """Yield the paths of modules and tensors that are used.

    Args:
        module: in a variable.
        path: of it.
        attributes: that are read of it; None: it is called, or handed on.

    Raises:
        Unusable: one is neither a module, nor a tensor, nor plain data, nor a method whose source is known.
    """
    yield from _used(module, path, attributes, set())


def _used(module: nn.Module, path: str, attributes: set[str] | None, seen: set[str]) -> Iterator[str]:
    if attributes is None:
        if not path:
            raise Unusable("hands the whole model on")
        yield path
        return
    for name in sorted(attributes - seen):
        seen.add(name)
        if name in module._modules or name in module._parameters or name in module._buffers:
            yield dotted((path, name))
        elif name in vars(module):
            if not _is_plain(vars(module)[name]):
                raise Unusable(f"uses .{name}, a {type(vars(module)[name]).__name__}")
        else:
            yield from _used(module, path, _of_class(module, name), seen)


def _of_class(module: nn.Module, name: str) -> set[str]:
    """Return what a method, property or constant of the user's class reads of its module."""
    found = inspect.getattr_static(type(module), name, None)
    if isinstance(found, staticmethod) or _is_plain(found):
        return set()
    function = found.fget if isinstance(found, property) else found
    source = source_of(function.__code__) if isinstance(function, FunctionType) else None
    if source is None or not source.args.args or name in _OF_MODULES:
        raise Unusable(f"uses .{name}")
    own = source.args.args[0].arg
    body = tuple(source.body)
    read = attributes_of(body, own)
    if read is None or why_not_alone(body) or own in written_variables(body):
        raise Unusable(f"calls .{name}, which does more than read its module")
    return read


def _is_plain(value: Any) -> bool:
    """Tell whether a value says all that it is, and cannot be changed."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)
