"""Turns a program into a graph with torch.fx, keeping what plain symbolic tracing loses without a word.

Kept: no_grad and autocast regions, custom autograd functions, tensors made from the batch's sizes, item assignment.
torch.nn modules stay whole (LSTM, dropout, batch norm), and the graph keeps the user's names.
"""

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx, nn

from nfold.capture.calling import call
from nfold.capture.program_graph import Loss, LossCall, Traced, dotted, module_path
from nfold.capture.random import RandomState
from nfold.capture.regions import Region
from nfold.capture.tree import with_items
from nfold.capture.writes import WeightWrites

_FACTORIES = ("arange", "zeros", "ones", "full", "empty", "eye", "linspace", "rand", "randn", "randint", "randperm")


class TraceRefused(Exception):
    """A program cannot be traced.

    Attributes:
        module: path of the innermost of the user's modules in which it failed; empty for the model itself.
        exportable: whether torch.export may do better.
    """

    def __init__(self, message: str, module: str = "", *, exportable: bool = True) -> None:
        super().__init__(message)
        self.module = module
        self.exportable = exportable


def trace(model: nn.Module, loss: Loss, inputs: Any, *, opaque: tuple[str, ...] = ()) -> Traced:
    """Trace a throw-away copy of a model and a loss. About 0.1 ms per node.

    Args:
        model: in training mode; its forward runs once on stand-ins, Python side effects included.
        loss: kept as one node.
        inputs: an example, for its structure only.
        opaque: paths of modules to keep whole; `""` is the model itself.

    Raises:
        TraceRefused: control flow on a value, or anything else that fx cannot follow.
    """
    root, tracer = _TraceRoot(model, loss, inputs), _Tracer(frozenset(opaque))
    before = RandomState()
    try:
        with _patched(tracer), (writes := WeightWrites(model)):
            graph = tracer.trace(root)
    except TraceRefused:
        raise
    except Exception as error:
        raise TraceRefused(f"{type(error).__name__}: {error}", tracer.innermost) from error
    if before.moved():
        before.restore()
        raise TraceRefused("it draws random numbers outside of the graph")
    if written := writes.weights():
        raise TraceRefused(f"it writes to {dotted(written[0])} outside of the graph", exportable=False)
    constants = {name: value for name, value in vars(root).items() if isinstance(value, torch.Tensor)}
    return Traced(graph=graph, method="fx", constants=constants, opaque=tuple(tracer.kept))


def is_leaf(module: nn.Module) -> bool:
    """Return whether a trace has a module as one node whatever happens: torch's own, but for containers."""
    return fx.Tracer().is_leaf_module(module, "")


class _TraceRoot(nn.Module):
    """The program as fx sees it: the input taken apart into stand-ins, the loss one node."""

    def __init__(self, model: nn.Module, loss: Loss, template: Any) -> None:
        super().__init__()
        self.model = model
        self.__dict__.update(loss=LossCall(loss), template=template)

    def forward(self, input: Any, target: Any) -> Any:
        outputs = call(self.model, _spread(input, self.__dict__["template"]))
        loss = self.__dict__["loss"]
        if isinstance(outputs, dict) and type(outputs) is not dict:
            loss = _LossOfKind(loss, outputs)
        return target.tracer.create_proxy("call_function", loss, (outputs, target), {})


class _LossOfKind(LossCall):
    """The user's loss, given outputs of the class that the model returns: a graph knows plain dicts."""

    def __init__(self, loss: LossCall, outputs: dict[Any, Any]) -> None:
        super().__init__(loss)
        self.__name__ = loss.__name__
        self._like = with_items(outputs, dict.fromkeys(outputs))

    def __call__(self, outputs: Any, target: Any) -> torch.Tensor:
        return super().__call__(with_items(self._like, outputs), target)


class _Tracer(fx.Tracer):
    proxy_buffer_attributes = True

    def __init__(self, opaque: frozenset[str]) -> None:
        super().__init__()
        self._opaque = opaque
        self._stack: list[str] = []
        self.kept: dict[str, None] = {}
        """Modules of the user that are in the graph as a whole."""

    @property
    def innermost(self) -> str:
        """The module that is being traced, or in which tracing stopped."""
        return self._stack[-1] if self._stack else ""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        path = module_path(module_qualified_name)
        if super().is_leaf_module(m, module_qualified_name):
            return True
        if path in self._opaque:
            self.kept[path] = None
        return path in self._opaque

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return super().call_module(m, forward, args, kwargs)
        self._stack.append(module_path(path))
        result = super().call_module(m, forward, args, kwargs)
        self._stack.pop()
        return result

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            raise TraceRefused("it recomputes or packs activations (checkpointing)", self.innermost, exportable=False)
        node = super().create_node(*args, **kwargs)
        node.meta["region"] = Region.current()
        node.meta["module"] = self.innermost
        return node

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Standin(node, self)


class _Standin(fx.Proxy):
    """A stand-in that accepts item assignment, and refuses what would set an attribute of the stand-in alone."""

    tracer: _Tracer

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(torch.Tensor, name):
            raise TraceRefused(f"it replaces the {name} of a tensor", self.tracer.innermost, exportable=False)
        super().__setattr__(name, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})


class _Apply:
    """A custom autograd function as one node; tracing through it would lose its backward."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.__name__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function.apply(*args, **kwargs)


@contextlib.contextmanager
def _patched(tracer: _Tracer) -> Iterator[None]:
    """Make autograd functions and tensor factories leave nodes while tracing."""
    apply = vars(torch.autograd.Function)["apply"]
    factories = {name: getattr(torch, name) for name in _FACTORIES}

    def apply_node(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if any(callable(arg) and not isinstance(arg, fx.Proxy) for arg in args):
            raise TraceRefused(f"{cls.__name__} is given a function", tracer.innermost, exportable=False)
        return tracer.create_proxy("call_function", _Apply(cls), args, kwargs)

    def factory_node(factory: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: tracer.create_proxy("call_function", factory, args, kwargs)

    try:
        torch.autograd.Function.apply = classmethod(apply_node)  # type: ignore[method-assign, assignment]
        for name, factory in factories.items():
            setattr(torch, name, factory_node(factory))
        yield
    finally:
        torch.autograd.Function.apply = apply  # type: ignore[method-assign]
        for name, factory in factories.items():
            setattr(torch, name, factory)


def _spread(proxy: Any, template: Any) -> Any:
    """Return the structure of an example with stand-ins in place of its parts."""
    if isinstance(template, dict):
        return {key: _spread(proxy[key], item) for key, item in template.items()}
    if isinstance(template, tuple) and hasattr(template, "_fields"):
        return type(template)(*(_spread(proxy[index], item) for index, item in enumerate(template)))
    if isinstance(template, (list, tuple)):
        return type(template)(_spread(proxy[index], item) for index, item in enumerate(template))
    return proxy
