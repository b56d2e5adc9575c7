"""Keeps torch's compiler out of ranks, which compile nothing: loading it takes as long as loading torch.

The first optimizer of a process imports `torch._dynamo` only to say that its methods shall not be compiled, and the
first backward pass with a given gradient imports `torch.fx.experimental.symbolic_shapes`, and sympy with it, only to
compare two shapes. In the place of both stands a module that answers these questions by itself, for as long as nobody
asks for more: any other name, a submodule or a `torch.compile` loads the real one, and what was answered before
is handed on to it.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"
_SHAPES = "torch.fx.experimental.symbolic_shapes"


def leave_compiler_out() -> None:
    """Load the compiler when this process needs it, not before. For a process that is ours alone."""
    stand_ins: dict[str, Mapping[str, Callable[..., Any]]] = {
        _COMPILER: {"disable": _disable, "graph_break": _graph_break},
        _SHAPES: {"sym_eq": _sym_eq, "expect_true": _expect_true},
    }
    for name, answers in stand_ins.items():
        if name not in sys.modules:
            sys.modules[name] = _StandIn(name, answers)


class _StandIn(ModuleType):
    """In the place of a module that is not loaded; it gives way to the real one at the first other name."""

    def __init__(self, name: str, answers: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(name)
        spec = importlib.util.find_spec(name)
        self.__spec__, self._is_package = spec, spec is not None and spec.submodule_search_locations is not None
        self.__dict__.update(answers)

    def __getattr__(self, name: str) -> Any:
        # Such names are asked for by whoever looks through all modules; but an import of a submodule asks for the path.
        is_submodule_wanted = name == "__path__" and self._is_package
        if name.startswith("__") and not is_submodule_wanted:
            raise AttributeError(f"module {self.__name__!r} is not loaded and has no {name!r} yet")
        return getattr(_real(self.__name__), name)


def _real(name: str) -> ModuleType:
    if isinstance(sys.modules.get(name), _StandIn):
        del sys.modules[name]
    return importlib.import_module(name)


def _is_loaded(name: str) -> bool:
    return not isinstance(sys.modules.get(name), _StandIn)


def _disable(function: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
    """Return a function that is not compiled: itself, while nothing is."""

    def called(*args: Any, **kwargs: Any) -> Any:
        if _is_loaded(_COMPILER):
            return _real(_COMPILER).disable(function, recursive, **options)(*args, **kwargs)
        return function(*args, **kwargs)

    return called


def _graph_break(*args: Any) -> None:
    """Break no graph, since none is being made."""
    if _is_loaded(_COMPILER):
        _real(_COMPILER).graph_break(*args)


def _sym_eq(one: Any, other: Any) -> Any:
    """Compare two shapes of plain numbers."""
    if all(type(size) is int for size in (*one, *other)):
        return tuple(one) == tuple(other)
    return _real(_SHAPES).sym_eq(one, other)


def _expect_true(answer: Any) -> bool:
    return answer if type(answer) is bool else bool(_real(_SHAPES).expect_true(answer))
