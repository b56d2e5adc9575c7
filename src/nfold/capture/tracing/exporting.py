"""Turns a model into a graph with torch.export, for programs that torch.fx refuses.

Batch norm is put back as the user's module, because export spells it out and would write its statistics on every
call. The loss stays one node, and everything is found by the user's own paths again.
"""

import contextlib
import io
import logging
import operator
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from nfold.capture.batches.example import Example
from nfold.capture.computing.grad_and_autocast_regions import Region
from nfold.capture.computing.random import RandomState
from nfold.capture.program.calling import arguments
from nfold.capture.program.program_graph import INPUT, MODEL, TARGET, Loss, LossCall, Traced
from nfold.capture.tracing.fx_tracing import TraceRefused
from nfold.capture.tracing.observe import BatchNorm

_SIZE = 4


def export(model: nn.Module, loss: Loss, example: Example) -> Traced:
    """Export a throw-away copy of a model, for any number of samples from 2 up. 0.1 to 2 s.

    Raises:
        TraceRefused: torch.export cannot follow it, or fixes the number of samples.
    """
    inputs, _ = example.batch(_SIZE)
    if not all(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(inputs)):
        raise TraceRefused("its input holds more than tensors")
    before = RandomState()
    try:
        return _Translation(_export(model, inputs), model, inputs).traced(loss)
    except Exception as error:
        raise TraceRefused(f"{type(error).__name__}: {error}") from error
    finally:
        before.restore()


class _FlatLoss(LossCall):
    """The user's loss, given the outputs as export lists them."""

    def __init__(self, loss: Loss, spec: Any) -> None:
        super().__init__(loss)
        self._spec = spec

    def __call__(self, outputs: Any, target: Any) -> torch.Tensor:
        return super().__call__(pytree.tree_unflatten(list(outputs), self._spec), target)


class _Translation:
    """An exported module's graph, rewritten over `input`, `target` and the user's paths."""

    def __init__(self, exported: fx.GraphModule, model: nn.Module, inputs: Any) -> None:
        self._exported, self._model = exported, model
        self._paths = [path for path, _ in pytree.tree_flatten_with_path(inputs)[0]]
        tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        self._own = {name for name, _ in tensors}
        self._graph = fx.Graph()
        self._known: dict[fx.Node, fx.Node] = {}
        self._constants: dict[str, Any] = {}

    def traced(self, loss: Loss) -> Traced:
        """Return the program."""
        source, target = self._graph.placeholder(INPUT), self._graph.placeholder(TARGET)
        parts = iter([self._part(source, path) for path in self._paths])
        for node in self._exported.graph.nodes:
            if node.op == "placeholder":
                self._known[node] = next(parts)
            elif node.op == "get_attr":
                self._known[node] = self._tensor(str(node.target))
            elif node.target is torch.ops.aten._assert_tensor_metadata.default:
                # It makes nothing, and would be an operator that has to be sent its tensor.
                continue
            elif node.target is torch.ops.aten.detach_.default and _is_constant(node.args[0]):
                # As it writes torch.tensor(..): what was made of no weight has no gradient, and may be a view by now.
                self._known[node] = self._known[node.args[0]]
            elif node.op == "output":
                outputs = fx.map_arg(node.args[0], self._known.__getitem__)
                self._graph.output(
                    self._graph.call_function(_FlatLoss(loss, self._exported._out_spec), (outputs, target))
                )
            else:
                self._known[node] = self._graph.node_copy(node, self._known.__getitem__)
                self._known[node].meta = {"module": _module(node)}
        self._restore_batch_norm()
        for node in self._graph.nodes:
            node.meta = {"module": node.meta.get("module", ""), "region": Region.current()}
        return Traced(graph=self._graph, method="export", constants=self._constants)

    def _part(self, source: fx.Node, path: tuple[Any, ...]) -> fx.Node:
        for key in path:
            name = key.key if isinstance(key, pytree.MappingKey) else key.idx
            source = self._graph.call_function(operator.getitem, (source, name))
        return source

    def _tensor(self, name: str) -> fx.Node:
        """Refer to the user's tensor, or keep what export made: constants, and the bodies of its regions."""
        path = f"{MODEL}.{name}"
        if name not in self._own:
            self._constants[path] = operator.attrgetter(name)(self._exported)
        return self._graph.create_node("get_attr", path)

    def _restore_batch_norm(self) -> None:
        norms = {name for name, module in self._model.named_modules() if isinstance(module, BatchNorm)}
        for node in list(self._graph.nodes):
            if node.target is torch.ops.aten.batch_norm.default:
                owner = _owner(node.args[3])
                if owner in norms and node.args[5]:
                    with self._graph.inserting_before(node):
                        call = self._graph.call_module(f"{MODEL}.{owner}", (node.args[0],))
                    call.meta = dict(node.meta)
                    node.replace_all_uses_with(call)
                    self._graph.erase_node(node)
            elif node.target is torch.ops.aten.add_.Tensor and _owner(node.args[0]) in norms:
                node.replace_all_uses_with(node.args[0])
                self._graph.erase_node(node)


def _export(model: nn.Module, inputs: Any) -> fx.GraphModule:
    batch = torch.export.Dim("batch", min=2)

    def dynamic(leaf: torch.Tensor) -> Any:
        return {0: batch} if leaf.ndim and leaf.shape[0] == _SIZE else None

    # It writes its own thoughts to every channel there is; what matters comes as an exception.
    silence = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(silence),
        contextlib.redirect_stderr(silence),
        _no_logs(),
    ):
        warnings.simplefilter("ignore")
        shapes = pytree.tree_map(dynamic, inputs)
        args, kwargs = arguments(model, inputs)
        dynamic_shapes = shapes if kwargs else tuple(shapes) if len(args) > 1 else (shapes,)
        exported = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        found: fx.GraphModule = exported.module(check_guards=False)
    _refuse_transforms(found.graph)
    return found


def _refuse_transforms(graph: fx.Graph) -> None:
    """Refuse a graph that enters and leaves vmap or grad as nodes: cut in between, it would never leave them.

    Raises:
        TraceRefused: it does.
    """
    for node in graph.nodes:
        if "functorch" in str(getattr(node.target, "__module__", "")):
            raise TraceRefused(f"it computes under a transform of torch.func ({node.name})", exportable=False)


@contextlib.contextmanager
def _no_logs() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _is_constant(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.target in (
        torch.ops.aten.lift_fresh_copy.default,
        torch.ops.aten.detach_.default,
    )


def _module(node: fx.Node) -> str:
    """Return the path of the user's module that a node is in."""
    stack = [entry[0] for entry in node.meta.get("nn_module_stack", {}).values()]
    return stack[-1] if stack and not str(stack[-1]).startswith("_") else ""


def _owner(tensor: Any) -> str | None:
    """Return the module whose buffer a node reads."""
    if not isinstance(tensor, fx.Node) or tensor.op != "get_attr":
        return None
    return str(tensor.target).removeprefix(f"{MODEL}.").rpartition(".")[0]
