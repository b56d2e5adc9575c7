"""Turns a program into a graph with torch.fx, keeping what plain symbolic tracing loses without a word.

Kept: no_grad and autocast regions, custom autograd functions, tensors made from the batch's sizes, item assignment,
packed sequences. Loops and decisions on sizes are followed where they are the same for every number of samples.
torch.nn modules stay whole (LSTM, dropout, batch norm), and the graph keeps the user's names.
"""

import builtins
import contextlib
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, Never

import torch
from torch import fx, nn
from torch.nn.utils import rnn
from torch.utils import _pytree as pytree

from nfold.capture.batches.example import SIZES, THIRD_SIZE, Example
from nfold.capture.batches.tree import with_items
from nfold.capture.computing.grad_and_autocast_regions import Region
from nfold.capture.computing.random import RandomState
from nfold.capture.computing.replacing import replaced
from nfold.capture.program.calling import call, uncompiled
from nfold.capture.program.held_statement import Held
from nfold.capture.program.program_graph import Loss, LossCall, Traced, dotted, module_path
from nfold.capture.program.users_line import place_here, place_of
from nfold.capture.program.weight_writes import WeightWrites
from nfold.capture.statements.holding import CannotHoldStatement, Holding
from nfold.capture.tracing.known_sizes import STANDINS, KnownSizes, Standin, Undecided, parts_of
from nfold.capture.tracing.plain_errors import plainly

_FROM_NUMBERS = ("tensor", "as_tensor", "scalar_tensor")
"""They make a node where they are given stand-ins, and a constant otherwise."""
_PACKING = (
    rnn.pack_padded_sequence,
    rnn.pad_packed_sequence,
    rnn.pack_sequence,
    rnn.pad_sequence,
    rnn.unpack_sequence,
    rnn.unpad_sequence,
)
_OUTSIDE = ("nfold.", "torch.")
"""Code that asks what a stand-in is, and not what it stands for."""
_ISINSTANCE = isinstance
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


def trace(
    model: nn.Module, loss: Loss, example: Example, *, opaque: tuple[str, ...] = (), holding: Holding | None = None
) -> Traced:
    """Trace a throw-away copy of a model and a loss. About 0.1 ms per node.

    Args:
        model: in training mode; its forward runs once on stand-ins, Python side effects included.
        loss: kept as one node.
        example: batches, for their structure, and for their sizes where forward asks for them.
        opaque: paths of modules to keep whole; `""` is the model itself.
        holding: statements to keep whole.

    Raises:
        TraceRefused: control flow on a value, or anything else that cannot be followed.
    """
    batches = {size: example.batch(size) for size in (*SIZES, THIRD_SIZE)}
    root = _TraceRoot(model, loss, tuple(batches[size][0] for size in SIZES))
    known = KnownSizes(model, vars(root), batches)
    tracer = _Tracer(frozenset(opaque), known)
    before = RandomState()
    try:
        with _patched(tracer), (holding or Holding()).during(tracer), (writes := WeightWrites(model)):
            graph = tracer.trace(root)
    except TraceRefused:
        raise
    except Exception as error:
        place = place_of(error) or "forward"
        raise TraceRefused(f"{place} {plainly(error)}", tracer.innermost) from error
    if before.moved():
        before.restore()
        raise TraceRefused("it draws random numbers outside of the graph")
    if written := writes.weights():
        raise TraceRefused(f"it writes to {dotted(written[0])} outside of the graph", exportable=False)
    _drop_unused(graph, vars(root))
    constants = {name: value for name, value in vars(root).items() if isinstance(value, (torch.Tensor, Held))}
    return Traced(graph=graph, method="fx", constants=constants, opaque=tuple(tracer.kept))


def is_leaf(module: nn.Module) -> bool:
    """Whether a trace keeps a module as one node in any case: torch's own modules, but not its containers."""
    return fx.Tracer().is_leaf_module(module, "")


class _TraceRoot(nn.Module):
    """The program as fx sees it: the input taken apart into stand-ins, the loss one node."""

    def __init__(self, model: nn.Module, loss: Loss, templates: tuple[Any, ...]) -> None:
        super().__init__()
        self.model = model
        self.__dict__.update(loss=LossCall(loss), templates=templates)

    def forward(self, input: Any, target: Any) -> Any:
        outputs = call(uncompiled(self.model), _spread(input, *self.__dict__["templates"]))
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

    def __init__(self, opaque: frozenset[str], known: KnownSizes) -> None:
        super().__init__(autowrap_modules=(math,), autowrap_functions=_PACKING)
        self._autowrap_search.append(rnn)
        self._opaque, self._known = opaque, known
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
        if self._known.is_computing or self._is_made_on_the_spot(m):
            return forward(*args, **kwargs)
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return super().call_module(m, forward, args, kwargs)
        self._stack.append(module_path(path))
        result = super().call_module(m, forward, args, kwargs)
        self._stack.pop()
        return result

    def _is_made_on_the_spot(self, m: nn.Module) -> bool:
        """Return whether forward itself makes a module, such as `nn.GELU()(x)`: with no state it is a function."""
        return m not in (self.submodule_paths or ()) and not m.state_dict(keep_vars=True)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val if self._known.is_computing else super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            raise TraceRefused("it recomputes or packs activations (checkpointing)", self.innermost, exportable=False)
        node = super().create_node(*args, **kwargs)
        node.meta["region"] = Region.current()
        node.meta["module"] = self.innermost
        if node.op != "output":
            self._known.add(node)
        return node

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return Standin(node, self)

    # Statements that stay whole

    @property
    def holds(self) -> bool:
        """Whether there are any: what comes out of them may be another name of what they were given."""
        return any(isinstance(value, Held) for value in vars(self.root).values())

    def path_of(self, module: nn.Module) -> str:
        """Return where the model has a module.

        Raises:
            CannotHold: it has not.
        """
        try:
            return module_path(self.path_of_module(module))
        except NameError as error:
            raise CannotHoldStatement(f"uses a {type(module).__name__} that is no part of the model") from error

    def node_of(self, held: Held, values: tuple[Any, ...]) -> tuple[fx.Proxy, list[tuple[Any, ...]]]:
        """Put statements into the graph; see `Holding`."""
        others = vars(self.root)
        target = next(name for name in _numbered(held.name) if name not in others)
        others[target] = held
        self.kept[held.name] = None
        standin = self.create_proxy("call_module", target, values, {})
        return standin, self.ask(KnownSizes.values, standin.node)

    def settle(self, node: fx.Node, held: Held) -> None:
        """Put in what is known of statements now."""
        vars(self.root)[str(node.target)] = held

    # What Python asks of stand-ins

    @property
    def is_computing(self) -> bool:
        """Whether real values are being computed, and nothing must be traced."""
        return self._known.is_computing

    def to_bool(self, obj: fx.Proxy) -> bool:
        return bool(self.ask(KnownSizes.number, obj.node))

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        return parts_of(obj, self.ask(KnownSizes.length, obj.node))

    def keys(self, obj: fx.Proxy) -> Any:
        return self.ask(KnownSizes.keys, obj.node)

    def ask(self, ask: Callable[[KnownSizes, fx.Node], Any], node: fx.Node) -> Any:
        """Return what is known of a value.

        Raises:
            TraceRefused: another batch would give another answer.
        """
        try:
            return ask(self._known, node)
        except Undecided as undecided:
            # A decision that torch.export cannot make for all batches it refuses, too.
            self.refuse(undecided.why, exportable=True)

    def is_instance(self, value: Any, kinds: Any) -> bool:
        """Answer for the value where the user's code asks what a stand-in is. Compiled code must not be told so."""
        asking = sys._getframe(1).f_globals.get("__name__", "")
        if type(value) not in STANDINS or self.is_computing or asking.startswith(_OUTSIDE):
            return _ISINSTANCE(value, kinds)
        return issubclass(self._known.kind(value.node), kinds)

    def hash_of(self, standin: Standin) -> int:
        """Return what a dict or set of the user's looks a value up by."""
        asking = sys._getframe(2).f_globals.get("__name__", "")
        is_own = self.is_computing or asking.startswith(_OUTSIDE)
        if is_own or not issubclass(self._known.kind(standin.node), (bool, int, float, str)):
            return id(standin)
        return hash(self.ask(KnownSizes.number, standin.node))

    def refuse(self, why: str, *, exportable: bool = False) -> Never:
        """Stop, and say what the user's line does.

        Raises:
            TraceRefused: always.
        """
        place = place_here() or "forward"
        raise TraceRefused(f"{place} {why}", self.innermost, exportable=exportable)


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}@{number}" for number in itertools.count(2))


def _drop_unused(graph: fx.Graph, others: dict[str, Any]) -> None:
    """Leave out variables that statements set and nobody reads: they need not be of one kind."""
    for node in reversed(list(graph.nodes)):
        held = others.get(str(node.target))
        if node.op != "call_module" or not isinstance(held, Held):
            continue
        parts = {part for part in node.users if part.target is operator.getitem}
        for part in [part for part in parts if not part.users]:
            graph.erase_node(part)
        used = {part.args[1] for part in node.users if part in parts}
        others[str(node.target)] = held.checking(used)


class _Apply:
    """A custom autograd function as one node; tracing through it would lose its backward."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.__name__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function.apply(*args, **kwargs)


@contextlib.contextmanager
def _patched(tracer: _Tracer) -> Iterator[None]:
    """Make autograd functions, tensor factories, `len` and `print` leave nodes while tracing."""
    apply = vars(torch.autograd.Function)["apply"]

    def apply_node(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if tracer.is_computing:
            return apply.__func__(cls, *args, **kwargs)
        if any(callable(arg) and not isinstance(arg, fx.Proxy) for arg in args):
            raise TraceRefused(f"{cls.__name__} is given a function", tracer.innermost, exportable=False)
        return tracer.create_proxy("call_function", _Apply(cls), args, kwargs)

    def always(_args: Any) -> bool:
        return not tracer.is_computing

    def if_given(args: Any) -> bool:
        return not tracer.is_computing and any(isinstance(leaf, fx.Proxy) for leaf in pytree.tree_leaves(args))

    def first_given(args: Any) -> bool:
        return bool(args[0]) and isinstance(args[0][0], fx.Proxy)

    def node_maker(function: Callable[..., Any], when: Callable[[Any], bool]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if when((args, kwargs)):
                return tracer.create_proxy("call_function", function, args, kwargs)
            return function(*args, **kwargs)

        return call

    places: list[tuple[Any, str, Callable[[Any], bool]]]
    places = [(torch, name, always) for name in _FACTORIES] + [(torch, name, if_given) for name in _FROM_NUMBERS]
    places += [(builtins, "len", first_given), (builtins, "print", if_given)]
    with contextlib.ExitStack() as patches:
        patches.enter_context(replaced(torch.autograd.Function, "apply", classmethod(apply_node)))
        for owner, name, when in places:
            patches.enter_context(replaced(owner, name, node_maker(getattr(owner, name), when)))
        patches.enter_context(replaced(builtins, "isinstance", tracer.is_instance))
        yield


def _spread(proxy: Any, template: Any, *others: Any) -> Any:
    """Return the structure of examples with stand-ins in place of its parts; a list with an entry a sample is one."""
    if not isinstance(template, (dict, list, tuple)) or any(len(other) != len(template) for other in others):
        return proxy
    keys = list(template) if isinstance(template, dict) else range(len(template))
    parts = [_spread(proxy[key], template[key], *(other[key] for other in others)) for key in keys]
    if isinstance(template, dict):
        return dict(zip(keys, parts, strict=True))
    return type(template)(*parts) if hasattr(template, "_fields") else type(template)(parts)
