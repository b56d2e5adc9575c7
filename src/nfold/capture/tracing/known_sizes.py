"""Tells a trace what Python must know of sizes: computed for three batches at once, and only once somebody asks.

A number that comes from shapes alone may decide which way forward goes, if it is the same for every number of samples.
One that comes from the values of a tensor may not: with other samples it is another.
"""

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.utils._python_dispatch import _disable_current_modes

from nfold.capture.batches.example import SIZES
from nfold.capture.batches.sizes import Affine, fit_number
from nfold.capture.computing.random import RandomState
from nfold.capture.program.program_graph import INPUT, Scope
from nfold.capture.tracing.observe import compute
from nfold.capture.tracing.value_sizes import ValueReading, ValueReads, ValueSizes

_SIZE_METHODS = {"size", "dim", "numel", "nelement", "ndimension", "__len__"}
_SIZE_ATTRIBUTES = {"shape", "ndim"}
_KIND_ATTRIBUTES = {"dtype", "device", "layout", "is_cuda", "is_sparse", "requires_grad"}
_KIND_METHODS = {"is_floating_point", "is_complex", "is_contiguous", "get_device", "is_signed"}
_SELDOM_ALIKE = {"requires_grad", "is_contiguous"}
"""What may be another in a branch that was not taken."""
_KIND_FUNCTIONS = (torch.is_floating_point, torch.is_complex)
_LEN = len
"""The function itself: a trace puts another in its place."""
_MOST_SAMPLES = 128
"""Batches from one sample to this many are tried by arithmetic, and the powers of two above."""
_TRIED = (*range(1, _MOST_SAMPLES + 1), *(1 << power for power in range(8, 21)))


def reads_size(node: fx.Node) -> bool:
    """Whether a node asks a value for its size."""
    if node.op == "call_method":
        return node.target in _SIZE_METHODS
    if node.target is getattr:
        return node.args[1] in _SIZE_ATTRIBUTES
    return node.target in (torch.ops.aten.sym_size.int, _LEN)


class Undecided(Exception):
    """Python asks for something that differs from batch to batch.

    Attributes:
        why: in a few words that follow a line of the user's.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class KnownSizes:
    """The values of a trace's nodes for some batches, computed in the order of the program when one is needed."""

    def __init__(self, model: nn.Module, constants: dict[str, Any], batches: dict[int, tuple[Any, Any]]) -> None:
        """Take batches by their number of samples; the model is a throw-away copy."""
        self._scope, self._batches = Scope(model, constants), batches
        self._values: dict[int, dict[fx.Node, Any]] = {size: {} for size in batches}
        self._waiting: list[fx.Node] = []
        self._reads, self._readings = ValueReads(), dict[fx.Node, ValueReading]()
        self._value_sizes = ValueSizes(self._readings, self._values[SIZES[0]])
        self.is_computing = False
        """Whether the user's own modules and functions are at work, and must not be traced."""

    def add(self, node: fx.Node) -> None:
        """Add a node that the trace has made."""
        self._waiting.append(node)

    def kind(self, node: fx.Node) -> type:
        """Return the class of a node's value."""
        return type(self._of(node)[0][1])

    def number(self, node: fx.Node) -> Any:
        """Return a number that only sizes decide.

        Raises:
            Undecided: values decide it, or the number of samples does.
        """
        if not _from_sizes(node):
            raise Undecided("decides on the values of a tensor")
        observed = self._of(node)
        first = observed[0][1]
        if any(map(self._is_decided, _reads_of(node))):
            raise Undecided("decides on a size that the values of a tensor decide")
        if any(value != first for _, value in observed) or any(self._at(node, size) != first for size in _TRIED):
            raise Undecided("decides on the number of samples in a batch")
        return first

    def values(self, node: fx.Node) -> list[Any]:
        """Return the values of a node for the batches that are computed."""
        return [value for _, value in self._of(node)]

    def length(self, node: fx.Node) -> int:
        """Return how many parts a value has.

        Raises:
            Undecided: that depends on the batch.
        """
        observed = self._of(node)
        lengths = {len(value) for _, value in observed}
        if len(lengths) > 1:
            raise Undecided("takes a batch apart sample by sample")
        if self._value_sizes.decide_length(node):
            raise Undecided("takes apart what the values of a tensor decide the length of")
        return lengths.pop()

    def keys(self, node: fx.Node) -> list[Any]:
        """Return the keys of a dict.

        Raises:
            Undecided: values decide them.
        """
        keys = list(self._of(node)[0][1])
        if self._value_sizes.decide_length(node):
            raise Undecided("takes apart what the values of a tensor decide the keys of")
        return keys

    def _of(self, node: fx.Node) -> list[tuple[int, Any]]:
        self._catch_up()
        return [(size, values[node]) for size, values in self._values.items()]

    def _is_decided(self, reader: fx.Node) -> bool:
        """Tell whether values decide what a node reads of a tensor."""
        sizes = self._value_sizes
        return sizes.decide_form(reader) if _reads_form(reader) else sizes.decide(reader)

    def _catch_up(self) -> None:
        if not self._waiting:
            return
        before, self.is_computing = RandomState(), True
        try:
            with _disable_current_modes():
                with self._reads:
                    for node in self._waiting:
                        self._reads.begin()
                        self._values[SIZES[0]][node] = self._compute(node, SIZES[0])
                        self._readings[node] = self._reads.take(node, self._scope)
                for size in (size for size in self._values if size != SIZES[0]):
                    for node in self._waiting:
                        self._values[size][node] = self._compute(node, size)
        finally:
            self.is_computing = False
            if before.moved():
                before.restore()
        self._waiting.clear()

    def _compute(self, node: fx.Node, size: int) -> Any:
        values = self._values[size]
        if node.op == "placeholder":
            return self._batches[size][0 if node.target == INPUT else 1]
        args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
        with node.meta["region"].enter():
            return compute(node, self._scope, args, kwargs)

    def _at(self, node: fx.Node, size: int) -> Any:
        """Return what comes out for any number of samples, by the rules that sizes follow."""
        if reads_size(node):
            rule = fit_number(self._of(node))
            if rule is None:
                raise Undecided("decides on a size that follows no rule")
            return _number(rule, size)
        if _reads_kind(node):
            return self._of(node)[0][1]
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda used: self._at(used, size))
        with contextlib.suppress(ArithmeticError, IndexError):
            return compute(node, self._scope, args, kwargs)
        raise Undecided("decides on the number of samples in a batch")


def _reads_of(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what reads the sizes and types from which a number comes."""
    if reads_size(node) or _reads_kind(node):
        yield node
    else:
        for used in node.all_input_nodes:
            yield from _reads_of(used)


def _reads_form(node: fx.Node) -> bool:
    name = node.target if node.op == "call_method" else node.args[1] if node.target is getattr else ""
    return name in ("dim", "ndimension", "ndim") or (_reads_kind(node) and name not in _SELDOM_ALIKE)


def _number(rule: Any, size: int) -> Any:
    if isinstance(rule, Affine):
        return rule.at(size)
    return torch.Size(_number(part, size) for part in rule) if isinstance(rule, tuple) else rule


def _reads_kind(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in _KIND_METHODS
    if node.target is getattr:
        return node.args[1] in _KIND_ATTRIBUTES
    return node.target in _KIND_FUNCTIONS


def _from_sizes(node: fx.Node) -> bool:
    """Tell whether a value comes from sizes and types alone."""
    if reads_size(node) or _reads_kind(node):
        return True
    return bool(node.all_input_nodes) and all(map(_from_sizes, node.all_input_nodes))


class Standin(fx.Proxy):
    """A stand-in for a value: accepts item assignment, knows its sizes, and refuses to tell its values."""

    def __getattr__(self, k: str) -> Any:
        if k.startswith("__") and k.endswith("__"):  # protocols of Python and numpy, which ask for memory
            raise AttributeError(k)
        return _Attribute(self, k)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(torch.Tensor, name):
            self.tracer.refuse(f"replaces the {name} of a tensor")  # type: ignore[attr-defined]
        super().__setattr__(name, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})

    def _in_place(self, operation: str, other: Any) -> Any:
        """Compute `x += y`: in place where x may be another name of a value, as a new value elsewhere."""
        name = f"i{operation.rstrip('_')}" if self.tracer.holds else operation  # type: ignore[attr-defined]
        return self.tracer.create_proxy("call_function", getattr(operator, name), (self, other), {})

    __iadd__ = functools.partialmethod(_in_place, "add")
    __isub__ = functools.partialmethod(_in_place, "sub")
    __imul__ = functools.partialmethod(_in_place, "mul")
    __itruediv__ = functools.partialmethod(_in_place, "truediv")
    __ipow__ = functools.partialmethod(_in_place, "pow")
    __iand__ = functools.partialmethod(_in_place, "and_")
    __ior__ = functools.partialmethod(_in_place, "or_")

    def __len__(self) -> int:
        return self._known(KnownSizes.length)  # type: ignore[no-any-return]

    def __index__(self) -> int:
        return operator.index(self._known(KnownSizes.number))

    def __int__(self) -> int:
        return int(self._known(KnownSizes.number))

    def __float__(self) -> float:
        return float(self._known(KnownSizes.number))

    def __str__(self) -> str:
        return str(self._known(KnownSizes.number))

    def __format__(self, spec: str) -> str:
        return format(self._known(KnownSizes.number), spec)

    def __hash__(self) -> int:
        """Let numbers be looked up in the user's dicts and sets; tensors are themselves alone."""
        return self.tracer.hash_of(self)  # type: ignore[attr-defined, no-any-return]

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self.tracer.refuse("needs the values of a tensor, for numpy")  # type: ignore[attr-defined]

    def _known(self, ask: Callable[[KnownSizes, fx.Node], Any]) -> Any:
        return self.tracer.ask(ask, self.node)  # type: ignore[attr-defined]


class _Attribute(Standin, fx.proxy.Attribute):
    """An attribute of a stand-in, or a method that is about to be called."""

    def __init__(self, root: fx.Proxy, attr: str) -> None:
        fx.proxy.Attribute.__init__(self, root, attr)


STANDINS = (Standin, _Attribute)


def parts_of(standin: fx.Proxy, number: int) -> Iterator[Any]:
    """Yield the parts of a value."""
    return (standin[index] for index in range(number))  # type: ignore[index]
