"""Watches the code of an optimizer's step, and tells what of it may look at a weight as a whole.

A trial shows what an optimizer does in its first steps. What it begins later (after a warm-up, at each 5,000th step)
stands in code that has not run, and code is known by the names of what it calls: who calls anything but functions of
single elements may look at all of a weight, or of all weights.
"""

import ast
import builtins
import contextlib
import dis
import functools
import gc
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from nfold.capture.optimizers.elementwise_names import OF_ELEMENTS, OF_MODES, OF_PYTHON, OF_SYSTEM, OF_WHOLES

_CLOSURE = "closure"
"""Of `step(closure=None)`: nfold gives none."""
_TORCH, _NFOLD = (f"{path}{os.sep}" for path in (Path(torch.__file__).parent, Path(__file__).parents[2]))
_PYTHON = sysconfig.get_paths()["stdlib"] + os.sep

_OF_TORCH = ("typing_extensions.py", "sympy", "mpmath", "networkx", "numpy")
"""What torch calls where one would not think of it."""
_COMPUTING = ("CALL", "BINARY_OP", "LOAD_ATTR", "LOAD_METHOD")

_Function = ast.FunctionDef | ast.Lambda
_Place = tuple[int | None, int | None]
"""The line and the column where an expression ends."""


class Use(NamedTuple):
    """A line of an optimizer's code that may look at a weight as a whole."""

    name: str
    """Of what is called, or asked of a tensor."""
    line: str
    """As `file.py:12`."""
    has_run: bool


@dataclass(slots=True)
class StepCode:
    """The code that has run while steps were watched, but for torch's and Python's own."""

    _run: dict[CodeType, "_Run"] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether torch's own code is all that has run."""
        return not self._run

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Record the code that this thread runs in a block. About a microsecond for each instruction."""
        before, collects = sys.gettrace(), gc.isenabled()
        gc.disable()  # a collection calls what others have asked it to, in the middle of a step
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()

    def uses(self, kind: type) -> list[Use]:
        """Return where the code may look at wholes, what has not run first.

        Args:
            kind: the optimizer's class.
        """
        ran = {code.co_name for code in self._run}
        unrun = {name for each in kind.__mro__ if not _is_of_torch(each) for name in vars(each)} - ran
        places = {
            (code.co_filename, place) for code, run in self._run.items() for place in _places(code, run.instructions)
        }
        found = set[Use]()
        for code, run in self._run.items():
            for name, node in _asked(code, run.names, unrun):
                if name not in ran:
                    has_run = (code.co_filename, (node.end_lineno, node.end_col_offset)) in places
                    found.add(Use(name, f"{os.path.basename(code.co_filename)}:{node.lineno}", has_run))
        return sorted(found, key=lambda use: (use.has_run, use))

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if _is_trusted(frame.f_code.co_filename) or _is_import(frame):
            return None
        instructions = self._run.setdefault(frame.f_code, _Run(frame.f_globals)).instructions
        frame.f_trace_opcodes, frame.f_trace_lines = True, False

        def note(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
            instructions.add(frame.f_lasti)
            return note

        return note


@dataclass(frozen=True, slots=True)
class _Run:
    """What ran of some code."""

    names: Mapping[str, Any]
    """The globals that it sees."""
    instructions: set[int] = field(default_factory=set)


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("torch", "builtins")


def _is_import(frame: FrameType | None) -> bool:
    """Tell whether code runs since something is imported, as torch does when it first needs it."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


@functools.cache
def _is_trusted(filename: str) -> bool:
    """Tell whether a file is torch's, Python's or nfold's: they do to an element the same wherever it lies."""
    if filename.startswith(("<frozen", _TORCH, _NFOLD)):
        return True
    _, is_package, path = filename.rpartition(f"-packages{os.sep}")
    return path.split(os.sep)[0] in _OF_TORCH if is_package else filename.startswith(_PYTHON)


def _places(code: CodeType, instructions: Container[int]) -> Iterator[_Place]:
    """Yield where the expressions end that some instructions compute; jumps over them have their places, too."""
    for each in dis.get_instructions(code):
        if each.offset in instructions and each.positions and each.opname.startswith(_COMPUTING):
            yield each.positions.end_lineno, each.positions.end_col_offset


def _asked(code: CodeType, names: Mapping[str, Any], unrun: Container[str]) -> Iterator[tuple[str, Any]]:
    """Yield the names of what a function calls or asks a tensor for, but functions of single elements, and where.

    Args:
        code: of the function; what is defined in it counts as well.
        names: globals.
        unrun: methods of the optimizer that did not run, whatever they are called.
    """
    if code.co_name.startswith("<") and code.co_name != "<lambda>":
        return  # a part of a function that has run, too
    function = _functions(code.co_filename).get((code.co_name, code.co_firstlineno))
    if function is None:
        yield "code without a source", ast.Name("", lineno=code.co_firstlineno, end_lineno=0, end_col_offset=0)
        return
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and (name := _unknown(node.func, names, unrun)):
            yield name, node
        elif isinstance(node, ast.Attribute) and node.attr in OF_WHOLES:
            yield node.attr, node
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield "@", node


@functools.cache
def _functions(filename: str) -> dict[tuple[str, int], _Function]:
    """Return the functions of a file by name and first line."""
    found: dict[tuple[str, int], _Function] = {}
    for node in ast.walk(ast.parse("".join(linecache.getlines(filename)))):
        if isinstance(node, ast.FunctionDef):
            found[node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])] = node
        elif isinstance(node, ast.Lambda):
            found["<lambda>", node.lineno] = node
    return found


def _unknown(called: ast.expr, names: Mapping[str, Any], unrun: Container[str]) -> str:
    """Return the name of what is called; empty if it computes with single elements alone."""
    if isinstance(called, ast.Attribute):
        if isinstance(called.value, ast.Name) and _is_of_system(names.get(called.value.id)):
            return ""
        is_known = called.attr not in unrun and (called.attr in OF_MODES or _is_of_elements(called.attr))
        return "" if is_known else called.attr
    if not isinstance(called, ast.Name):
        return ast.unparse(called)
    value = names.get(called.id, getattr(builtins, called.id, None))
    is_error = isinstance(value, type) and issubclass(value, BaseException)
    is_pythons = value is getattr(builtins, called.id, _CLOSURE) and called.id in OF_PYTHON
    is_torchs = value is not None and not isinstance(value, FunctionType) and _is_of_elements(called.id)
    return "" if called.id == _CLOSURE or is_error or is_pythons or is_torchs else called.id


def _is_of_system(value: Any) -> bool:
    return isinstance(value, ModuleType) and value.__name__ in OF_SYSTEM


def _is_of_elements(name: str) -> bool:
    return name.removeprefix("_foreach_").rstrip("_") in OF_ELEMENTS
