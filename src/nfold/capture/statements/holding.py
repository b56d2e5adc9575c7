"""Lets a trace go on where Python decides on values: the statements around the line become one node of the graph.

While a trace runs, the user's functions have other code, with calls in place of such statements. The functions are the
user's own and not copies, so it does not matter from where they are called.
"""

import ast
import contextlib
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType, FunctionType
from typing import Any, Protocol

import torch
from torch import fx, nn

from nfold.capture.program.held_statement import UNBOUND, Held, kind_of
from nfold.capture.program.users_line import is_code
from nfold.capture.statements.choice import Choice, choices, why_none
from nfold.capture.statements.effects import (
    attributes_of,
    changes_container,
    may_draw,
    only_counted,
    written_variables,
)
from nfold.capture.statements.functions import functions_of
from nfold.capture.statements.rewriting import HOLD, as_function, rewritten, source_of
from nfold.capture.statements.uses import Unusable, used_of_module

_MOST = 8
"""Statements to hold in one program: one that decides everywhere is better whole."""
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, range, slice, type(None))


class Tracer(Protocol):
    """What holding statements needs of a trace."""

    @property
    def is_computing(self) -> bool:
        """Whether real values are being computed instead of stand-ins."""

    def path_of(self, module: nn.Module) -> str:
        """Return the path of a module in the model."""

    def node_of(self, held: Held, values: tuple[Any, ...]) -> tuple[fx.Proxy, list[tuple[Any, ...]]]:
        """Put statements into the graph, and return what they give: a stand-in, and the outputs for some batches."""

    def settle(self, node: fx.Node, held: Held) -> None:
        """Give a node the statements as they are known now."""


class CannotHoldStatement(Exception):
    """Statements use something that no operator can have."""


@dataclass(slots=True)
class _Function:
    """A function of the user's with its own code, and statements to hold by number."""

    code: CodeType
    functions: list[FunctionType]
    chosen: dict[int, Choice] = field(default_factory=dict)
    code_now: CodeType | None = None


class Holding:
    """The statements that stay whole in traces of one program."""

    def __init__(self) -> None:
        self._functions: list[_Function] = []
        self._chosen: dict[int, tuple[_Function, Choice]] = {}
        self._tracer: Tracer | None = None
        self.why_not = ""
        """Why the last statement that was asked for cannot be held."""

    def take(self, error: BaseException) -> str:
        """Hold the smallest statements in which a trace failed, for the next trace.

        Returns:
            Their file and lines; empty if there are none that could be held.
        """
        self.why_not = ""
        if len(self._chosen) >= _MOST:
            return ""
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            if is_code(frame.f_code.co_filename) and (name := self._take_in(frame, line)):
                return name
        return ""

    @contextlib.contextmanager
    def during(self, tracer: Tracer) -> Iterator[None]:
        """Give functions their changed code for a block in which a trace runs."""
        self._tracer = tracer
        try:
            for each in self._functions:
                for function in each.functions:
                    function.__globals__[HOLD] = self._hold
                    if each.code_now is not None:
                        function.__code__ = each.code_now
            yield
        finally:
            self._tracer = None
            for each in self._functions:
                for function in each.functions:
                    function.__globals__.pop(HOLD, None)
                    function.__code__ = each.code

    def _take_in(self, frame: FrameType, line: int) -> str:
        known = self._function(frame)
        source = source_of(known.code) if known and known.functions else None
        if known is None or source is None:
            return ""
        self.why_not = self.why_not or why_none(source, line)
        for choice in choices(source, line):
            within = {number for number, other in known.chosen.items() if _is_within(other, choice)}
            if any(_is_within(choice, other) for other in known.chosen.values()):
                return ""
            number = len(self._chosen)
            chosen = {key: each for key, each in known.chosen.items() if key not in within} | {number: choice}
            code = rewritten(source, known.code, chosen)
            if why := self._why_not(choice, frame.f_locals):
                self.why_not = self.why_not or why
            if code is None or why:
                continue
            known.chosen, known.code_now, self._chosen[number] = chosen, code, (known, choice)
            if known not in self._functions:
                self._functions.append(known)
            return _name(known.code, choice)
        return ""

    def _function(self, frame: FrameType) -> _Function | None:
        for each in self._functions:
            if frame.f_code is each.code_now:
                return each
            if frame.f_code is each.code:  # made anew in every call, it cannot be given other code
                return None
        return _Function(frame.f_code, functions_of(frame))

    def _why_not(self, choice: Choice, variables: dict[str, Any]) -> str:
        try:
            _given(choice, variables, lambda module: "?")
        except CannotHoldStatement as reason:
            return str(reason)
        return ""

    def _hold(self, number: int, variables: dict[str, Any]) -> Any:
        """Stand for statements: a node of the graph; or compute, where something else than the trace calls them."""
        known, choice = self._chosen[number]
        tracer = self._tracer
        variables = {name: value for name, value in variables.items() if value is not UNBOUND}
        names = tuple(sorted(name for name in choice.inputs if name in variables))
        function = as_function(choice, names, known.code, known.functions[0].__globals__)
        if tracer is None or tracer.is_computing:
            return _result(choice, function(**{name: variables[name] for name in names}))
        values, modules, uses = _given(choice, variables, tracer.path_of)
        held = Held(
            name=_name(known.code, choice),
            function=function,
            inputs=tuple(values),
            modules=modules,
            uses=uses,
            outputs=None if choice.returns else choice.outputs,
            writes=bool(written_variables(choice.statements) - _counters(choice, variables)),
            draws=may_draw(choice.statements, set(modules)),
        )
        standin, observed = tracer.node_of(held, tuple(values.values()))
        kinds = {tuple(map(kind_of, parts)) for parts in observed}
        if len(kinds) > 1:
            raise CannotHoldStatement("gives other kinds of values for other batches")
        (usual,) = kinds
        tracer.settle(standin.node, replace(held, kinds=usual))
        parts = tuple(_stand_for(standin, index, part) for index, part in enumerate(observed[0]))
        return parts if not choice.returns or len(parts) != 1 else parts[0]


def _stand_for(standin: fx.Proxy, index: int, part: Any) -> Any:
    """Return what code that follows uses: nothing where there was nothing."""
    return part if part is None or part is UNBOUND else standin[index]  # type: ignore[index]


def _result(choice: Choice, found: Any) -> Any:
    return found if choice.returns else tuple(found.get(name, UNBOUND) for name in choice.outputs)


def _given(
    choice: Choice, variables: dict[str, Any], path_of: Any
) -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]]:
    """Return the variables to give, those that hold modules with their paths, and what is used of the model.

    Raises:
        CannotHold: a variable holds something that a part of a program cannot be given.
    """
    values, modules, uses = dict[str, Any](), dict[str, str](), list[str]()
    written = written_variables(choice.statements)
    for name in sorted(choice.inputs & variables.keys()):
        value = variables[name]
        if isinstance(value, nn.Module):
            if name in written:
                raise CannotHoldStatement(f"writes to {name}")
            modules[name] = path_of(value)
            attributes = attributes_of(choice.statements, name)
            try:
                uses += used_of_module(value, modules[name], attributes)
            except Unusable as reason:
                raise CannotHoldStatement(str(reason)) from reason
        elif _is_plain(value) and not (isinstance(value, (list, dict)) and changes_container(choice.statements, name)):
            values[name] = value
        else:
            raise CannotHoldStatement(f"uses {name}, a {type(value).__name__}")
    if outside := written - variables.keys() - _set_here(choice):
        raise CannotHoldStatement(f"writes to {min(outside)}")
    return values, modules, tuple(dict.fromkeys(uses))


def _counters(choice: Choice, variables: dict[str, Any]) -> set[str]:
    """Return the variables that hold a number, which `+=` replaces and does not write to."""
    numbers = {name for name, value in variables.items() if isinstance(value, (int, float))}
    return {name for name in numbers if only_counted(choice.statements, name)}


def _set_here(choice: Choice) -> set[str]:
    nodes = (node for each in choice.statements for node in ast.walk(each))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    return isinstance(value, (*_PLAIN, torch.Tensor, fx.Proxy))


def _is_within(inner: Choice, outer: Choice) -> bool:
    return outer.lines[0] <= inner.lines[0] and inner.lines[1] <= outer.lines[1]


def _name(code: CodeType, choice: Choice) -> str:
    first, last = choice.lines
    return f"{os.path.basename(code.co_filename)}:{first}" + (f"-{last}" if last > first else "")
