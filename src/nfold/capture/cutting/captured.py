"""A program that can be cut: its ModelGraph, and functions for any of its operators over the user's own weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from nfold.capture.batches.sizes import Affine, Spec, fit
from nfold.capture.batches.tree import paths_of
from nfold.capture.cutting.compiled_segments import Anchor, Draws, RandomNodes, compile_nodes
from nfold.capture.cutting.operator_cut import Cut
from nfold.capture.program.program_graph import LOSS, Scope, Traced
from nfold.capture.tracing.observe import Play
from nfold.core.graph import ModelGraph, Tensor
from nfold.errors import InternalError


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundSegment:
    """Computes a run of operators with the weights of one model.

    Call it with the values of `inputs`, in order; it returns those of `outputs`. It does not detach anything.
    """

    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: Callable[..., tuple[Any, ...]]

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """Compute."""
        return self.function(*values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How the names of a ModelGraph map onto a traced program."""

    traced: Traced
    cut: Cut
    operators: dict[str, tuple[fx.Node, ...]]
    tensors: dict[str, fx.Node]
    anchors: dict[fx.Node, Anchor]
    random: RandomNodes


class Captured:
    """A captured program, bound to one model.

    Attributes:
        graph: the program as data.
        model: the module whose parameters, buffers and torch.nn modules the segments use.
        scope: finds them; rows of a parameter are cut out of it, unless there are `weights` to hold them.
    """

    def __init__(
        self,
        graph: ModelGraph,
        layout: Layout,
        model: nn.Module,
        weights: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        self.graph = graph
        self.model = model
        self.layout = layout
        self.scope = scope_of(graph, layout, model, weights)
        self._operators = {operator.name: operator for operator in graph.operators}
        self._made: dict[str, list[tuple[int, Tensor]]] = {name: [] for name in self._operators}
        """What each operator makes, with its place among all tensors."""
        for place, tensor in enumerate(graph.tensors):
            if tensor.producer:
                self._made[tensor.producer].append((place, tensor))

    def with_graph(self, graph: ModelGraph) -> "Captured":
        """Return the same capture with another graph."""
        return Captured(graph, self.layout, self.model)

    def segment(
        self, operators: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], random: Draws
    ) -> BoundSegment:
        """Compile a run of operators. About 20 us per node; segments may be called any number of times.

        Args:
            operators: names, in the order of the graph.
            inputs: tensors that they use and do not make: see `boundary`.
            outputs: tensors to return.
            random: seeds each draw; draw k is the same however the program is cut.
        """
        nodes = [node for name in operators for node in self.layout.operators[name]]
        given = [self.layout.tensors[name] for name in inputs]
        function = compile_nodes(
            nodes,
            given,
            [self.layout.tensors[name] for name in outputs],
            cut=self.layout.cut,
            scope=self.scope,
            anchor=self._anchor(nodes, given),
            random=self.layout.random,
            draws=random,
        )
        return BoundSegment(operators=tuple(operators), inputs=tuple(inputs), outputs=tuple(outputs), function=function)

    def boundary(self, operators: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tensors that a run of operators takes, in order of first use, and those that others need of it."""
        inside, needed = set(operators), [self._operators[name] for name in operators]
        made = dict(sorted(each for name in operators for each in self._made[name]))
        own = {tensor.name for tensor in made.values()}
        inputs = dict.fromkeys(name for operator in needed for name in operator.inputs if name not in own)
        outputs = (
            tensor.name for tensor in made.values() if tensor.name == LOSS or not inside.issuperset(tensor.consumers)
        )
        return tuple(inputs), tuple(outputs)

    def spec(self, tensor: str) -> Spec:
        """Return the shape and type of a tensor for any chunk, so that both ends of a message know it.

        Raises:
            InternalError: it is an input of the program that holds several tensors.
        """
        spec = self.layout.cut.specs.get(self.layout.tensors[tensor])
        if spec is None:
            raise InternalError(f"{tensor} has no single shape")
        return spec

    def _anchor(self, nodes: Sequence[fx.Node], inputs: Sequence[fx.Node]) -> Anchor | None:
        if not any(needs_size(node, self.layout.cut) for node in nodes):
            return None
        anchors = (self.layout.anchors[node] for node in inputs if node in self.layout.anchors)
        anchor = next(anchors, None)
        if anchor is None:
            raise InternalError(f"no input tells the number of samples to {nodes[0]}")
        return anchor


def scope_of(
    graph: ModelGraph, layout: Layout, model: nn.Module, weights: Mapping[str, nn.Parameter] | None = None
) -> Scope:
    """Return a finder of the modules and tensors that a captured program names, in one model.

    Args:
        graph: tells which parameters are rows of others.
        layout: of the same program; it has the trace's constants.
        model: built by the same program.
        weights: parameters to use instead of the model's own, by name.
    """
    rows = {parameter.name: parameter.rows for parameter in graph.parameters if parameter.rows}
    return Scope(model, layout.traced.constants, rows, weights)


def needs_size(node: fx.Node, cut: Cut) -> bool:
    """Whether a node uses the number of samples."""
    return any(_grows(cut.sizes[used]) for used in node.all_input_nodes if used in cut.sizes)


def find_anchors(nodes: Sequence[fx.Node], plays: list[Play]) -> dict[fx.Node, Anchor]:
    """Find the values from which the number of samples can be read."""
    found = {}
    for node in nodes:
        observed = [(play.size, dict(paths_of(play.nodes[node].value))) for play in plays]
        for path, tensor in observed[0][1].items():
            for dimension in range(tensor.ndim):
                pairs = [(size, parts[path].shape[dimension]) for size, parts in observed if path in parts]
                line = fit(pairs) if len(pairs) == len(observed) else None
                if line is not None and line.slope and node not in found:
                    found[node] = Anchor(node=node, path=path, dimension=dimension, line=line)
    return found


def _grows(rule: Any) -> bool:
    if isinstance(rule, tuple):
        return any(_grows(part) for part in rule)
    return isinstance(rule, Affine) and rule.slope != 0
