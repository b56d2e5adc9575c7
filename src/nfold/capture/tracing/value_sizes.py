"""Tells which sizes the values of tensors decide: such a size is no rule of the batch, however often it came out equal.

What a node reads is watched while it computes, so code that nobody has heard of is found out too: each ATen operator
says by its tags whether its result's shape depends on values. What leaves for Python is watched in `torch.Tensor`.
"""

import contextlib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any, Self

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from nfold.capture.batches.tree import tensors_of
from nfold.capture.computing.replacing import replaced
from nfold.capture.program.held_statement import Statement
from nfold.capture.program.program_graph import Scope
from nfold.capture.tracing.layer_rows import is_watched

_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_UNTAGGED = {"_pack_padded_sequence", "_pad_packed_sequence", "equal", "linalg_lstsq", "segment_reduce"}
"""ATen operators without those tags whose result says more of values than it should."""
_LEAVING = ("tolist", "numpy", "__array__", "__dlpack__", "tensor_split", "data_ptr")
"""Methods of tensors that may read values without an operator."""
_MASKS = (torch.bool, torch.uint8)
_FIXED_LENGTH = ("pad_packed_sequence", "where", "nonzero")
"""Functions that return as many tensors whatever the values are: two, or one for each dimension."""


@dataclass(frozen=True, slots=True)
class ValueReading:
    """What one node did with values.

    Attributes:
        decides: whether a shape or number that it gives may depend on values.
        is_pointwise: whether a number that it was given can only be in its result's values, not in its shape.
        is_total: whether it reduces all of a tensor to one element.
        is_plain: whether it is code of torch or Python, not of the user.
        gives_list: whether it may give any number of tensors.
    """

    decides: bool = False
    is_pointwise: bool = False
    is_total: bool = False
    is_plain: bool = False
    gives_list: bool = False


class ValueReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches which values are read in what is computed under it. About 5 us for each ATen operator."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._patches = contextlib.ExitStack()
        self._reads = False
        self._operators: list[Any] = []

    def __enter__(self) -> Self:
        for owner, name in (*((torch.Tensor, name) for name in _LEAVING), (torch, "tensor_split")):
            self._patches.enter_context(replaced(owner, name, self._noting(name, getattr(owner, name))))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._patches.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute, and note what that read."""
        result = func(*args, **(kwargs or {}))
        self._reads = self._reads or _reads(func, args, result)
        self._operators.append(func)
        return result

    def begin(self) -> None:
        """Forget all reads: the next node is about to be computed."""
        self._reads, self._operators = False, []

    def take(self, node: fx.Node, scope: Scope) -> ValueReading:
        """Return the reads since `begin`, all of them by one node."""
        reads, operators = self._reads, self._operators
        if node.op == "call_module":  # a layer's result has a shape of its own, even where its code looks at a mask
            module = scope.module(str(node.target))
            if isinstance(module, Statement):
                return ValueReading(
                    decides=True, is_plain=True
                )  # what its results are is checked whenever it is called
            is_layer = _is_of_torch(module)
            return ValueReading(decides=reads and not is_layer, is_plain=is_layer)
        is_plain = _is_plain(node)
        is_computed = is_plain and bool(operators)
        return ValueReading(
            decides=reads or (_name(node) == "tensor_split" and len(node.all_input_nodes) > 1),
            is_pointwise=is_computed and all(torch.Tag.pointwise in each.tags for each in operators),
            is_total=is_computed and not node.kwargs and len(node.args) == 1 and all(map(_is_total, operators)),
            is_plain=is_plain,
            gives_list=_name(node) not in _FIXED_LENGTH and (not operators or any(map(_gives_list, operators))),
        )

    def _noting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = [*args[1:], *kwargs.values()]
            self._reads = self._reads or name != "tensor_split" or any(isinstance(each, torch.Tensor) for each in given)
            return method(*args, **kwargs)

        return call


class ValueSizes:
    """Follows from node to node which sizes are decided by values."""

    def __init__(self, readings: Mapping[fx.Node, ValueReading], values: Mapping[fx.Node, Any]) -> None:
        """Take what nodes did and gave for one batch; both may grow."""
        self._readings, self._values = readings, values
        self._known: dict[fx.Node, bool] = {}

    def decide(self, node: fx.Node) -> bool:
        """Whether values may decide a node's shape, or the number that it is. O(nodes) the first time."""
        waiting = [node]
        while waiting:
            each = waiting[-1]
            if unknown := [used for used in each.all_input_nodes if used not in self._known]:
                waiting += unknown
            else:
                self._known[waiting.pop()] = self._decided(each)
        return self._known[node]

    def decide_length(self, node: fx.Node) -> bool:
        """Whether values may decide how many parts a value has, or which parts."""
        value = self._values[node]
        if isinstance(value, torch.Size):
            return self.decide_form(node)
        reading = self._readings[node]
        is_fixed = isinstance(value, tuple) and reading.is_plain and not reading.gives_list
        return not is_fixed and self.decide(node)

    def decide_form(self, node: fx.Node) -> bool:
        """Whether values may decide a tensor's number of dimensions or its type, as few functions let them."""
        seen, waiting = {node}, [node]
        while waiting:
            each = waiting.pop()
            if self.decide(each) and (not self._readings[each].is_plain or _name(each) == "squeeze"):
                return True
            waiting += [used for used in each.all_input_nodes if used not in seen]
            seen.update(each.all_input_nodes)
        return False

    def _decided(self, node: fx.Node) -> bool:
        if self._readings[node].decides or self._is_given(node):
            return True
        return any(self._known[used] and not self._is_without(node, used) for used in node.all_input_nodes)

    def _is_given(self, node: fx.Node) -> bool:
        """Tell whether a node is a number that the data set gives, or may be shaped by one."""
        if not self._readings[node].is_plain:
            return any(_is_source(used) and _holds_numbers(self._values[used]) for used in node.all_input_nodes)
        return _is_source(node) and _is_number(self._values[node])

    def _is_without(self, node: fx.Node, used: fx.Node) -> bool:
        """Tell whether the shape of a node does not depend on one that it uses."""
        reading = self._readings[node]
        if isinstance(self._values[used], torch.Tensor):
            return reading.is_total
        return reading.is_pointwise and isinstance(self._values[node], torch.Tensor)


def _reads(func: Any, args: Any, result: Any) -> bool:
    if func is torch.ops.aten.index.Tensor:
        return any(index is not None and index.dtype in _MASKS for index in args[1])
    if func.namespace not in ("aten", "prims") or not _TAGS.isdisjoint(func.tags):
        return True
    is_sparse = any(each.layout is not torch.strided for each in tensors_of(result))
    return is_sparse or func._overloadpacket.__name__ in _UNTAGGED


def _is_total(func: Any) -> bool:
    return torch.Tag.reduction in func.tags and func._overloadname == "default"


def _gives_list(func: Any) -> bool:
    return any(isinstance(each.type, torch.ListType) for each in func._schema.returns)


def _is_plain(node: fx.Node) -> bool:
    """Tell whether a node calls torch or Python, not code of the user's that may decide on a number."""
    if node.op != "call_function":
        return True
    module = getattr(node.target, "__module__", None) or ""
    return isinstance(node.target, BuiltinFunctionType) or module.startswith(("torch.", "_operator", "math"))


def _is_of_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn.modules.") and not is_watched(module)


def _is_source(node: fx.Node) -> bool:
    """Tell whether a node is an input of the program, or a part of one."""
    while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node.op == "placeholder"


def _holds_numbers(value: Any) -> bool:
    return any(map(_is_number, pytree.tree_leaves(value)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _name(node: fx.Node) -> str:
    return str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))
