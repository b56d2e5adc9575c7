"""Cuts operators of a captured program into parts, as `planning/operator_parts/splitting.py` does with the program as
data.

    conv1 = conv(input, weight, bias)           conv1[0/2] = conv(input, weight[0:4], bias[0:4])
    relu1 = relu(conv1)                   -->   conv1[1/2] = conv(input, weight[4:8], bias[4:8])
    fc    = linear(relu1)                       relu1[0/2] = relu(conv1[0/2])          ..
                                                fc         = linear(cat(relu1[0/2], relu1[1/2]))

Joining is no operator: whoever needs the whole value joins the parts that it was sent.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from nfold.capture.batches.sizes import Affine, Spec
from nfold.capture.cutting.captured import Captured, Layout
from nfold.capture.cutting.chains import Chain, chain_of
from nfold.capture.cutting.compiled_segments import Anchor, RandomNodes
from nfold.capture.cutting.operator_cut import Cut
from nfold.capture.program.program_graph import MODEL
from nfold.core.graph import Channels, ModelGraph
from nfold.errors import InternalError
from nfold.planning.operator_parts.parts import Feed, OperatorPart, cut_into_parts
from nfold.planning.operator_parts.splitting import row_name, split_graph


def split(captured: Captured, splits: Mapping[str, int], weights: Mapping[str, nn.Parameter] | None = None) -> Captured:
    """Return the same program with operators cut into parts, over the same model. About 0.1 ms per node.

    Args:
        captured: the whole operators.
        splits: operator -> number of parts.
        weights: tensors to use for the rows of parameters; if not given, gradients go to the whole parameters.

    Raises:
        PlanError: an operator cannot be cut into so many parts.
    """
    if not splits:
        return captured
    graph = split_graph(captured.graph, splits)
    return Captured(graph, _Rewriting(captured, splits).layout(graph), captured.model, weights)


class _Rewriting:
    """A copy of a program in the making, in which parts take the place of some nodes."""

    def __init__(self, captured: Captured, splits: Mapping[str, int]) -> None:
        self._captured, self._old = captured, captured.layout
        self._parts = cut_into_parts(captured.graph, splits)
        self._names = {id(each): name for name, each in captured.model.named_parameters()}
        self._graph = fx.Graph()
        self._new: dict[fx.Node, fx.Node] = {}
        """For each old node the new one with the same value; of a value in parts, the node that joins them."""
        self._groups: dict[str, tuple[fx.Node, ...]] = {}
        self._tensors: dict[str, fx.Node] = {}
        self._joined: dict[tuple[str, ...], fx.Node] = {}
        self._free: set[fx.Node] = set()
        self._specs: dict[fx.Node, Spec] = {}
        self._anchors: dict[fx.Node, Anchor] = {}

    def layout(self, graph: ModelGraph) -> Layout:
        """Return the split program under the names of its graph."""
        owner = {node: name for name in self._parts.of for node in self._old.operators[name]}
        for node in self._old.traced.nodes:
            if node not in owner:
                self._new[node] = self._graph.node_copy(node, self._new.__getitem__)
            elif node is self._old.operators[owner[node]][0]:
                self._replace(owner[node])
        self._graph.output(self._new[self._old.traced.result])
        operators = {each.name: self._nodes(each.name) for each in graph.operators}
        draws = {self._new[node]: draw for node, draw in self._old.random.draws.items()}
        return Layout(
            traced=replace(self._old.traced, graph=self._graph),
            cut=self._cut(list(operators.values())),
            operators=operators,
            tensors={each.name: self._tensor(each.name) for each in graph.tensors},
            anchors=self._anchors | {self._new[n]: replace(a, node=self._new[n]) for n, a in self._old.anchors.items()},
            random=RandomNodes(draws, self._old.random.foreign),
        )

    def _nodes(self, name: str) -> tuple[fx.Node, ...]:
        return self._groups.get(name) or tuple(self._new[node] for node in self._old.operators[name])

    def _tensor(self, name: str) -> fx.Node:
        return self._tensors[name] if name in self._tensors else self._new[self._old.tensors[name]]

    def _cut(self, groups: list[tuple[fx.Node, ...]]) -> Cut:
        old = self._old.cut
        return Cut(
            groups=groups,
            sizes={self._new[node]: rule for node, rule in old.sizes.items()},
            specs={self._new[node]: spec for node, spec in old.specs.items()} | self._specs,
            parts={self._new[node] for node in old.parts} | self._free,
        )

    # Parts

    def _replace(self, name: str) -> None:
        channels, nodes = self._captured.graph.operator(name).channels, self._old.operators[name]
        chain = chain_of(nodes, self._captured.scope, self._old.cut, channels.axis if channels else None)
        if chain is None or channels is None:
            raise InternalError(f"{name} was found to be made of channels, and no longer is")
        if name in self._parts.feeds:
            self._feed(self._parts.feeds[name], chain, channels)
        parts = self._parts.of[name]
        for part in parts:
            self._part(part, chain, channels)
        whole = self._join(tuple(part.output for part in parts), channels, chain.last)
        self._new.update(dict.fromkeys(nodes, whole))

    def _part(self, part: OperatorPart, chain: Chain, channels: Channels) -> None:
        value, made = self._input(part, chain, channels), []
        if chain.layer is not None:
            call = chain.layer.call.of_groups(channels.groups_of(part.start, part.stop))
            paths = (chain.layer.weight, chain.layer.bias)
            weights = [self._rows(path, part, chain.last) if path else None for path in paths]
            value = self._call(call, (value, *weights), chain.last)
            made.append(value)
        for node in chain.rest:
            value = self._graph.node_copy(node, lambda _, value=value: value)  # type: ignore[misc]
            made.append(value)
        self._groups[part.name] = tuple(made)
        self._name(part.output, value, chain.last, channels.axis, part.stop - part.start)

    def _feed(self, feed: Feed, chain: Chain, channels: Channels) -> None:
        split = self._call(torch.split, (self._new[chain.source], list(feed.sizes), channels.axis), chain.last)
        outputs = [self._call(operator.getitem, (split, index), chain.last) for index in range(len(feed.sizes))]
        self._groups[feed.name] = (split, *outputs)
        for name, node, size in zip(feed.outputs, outputs, feed.sizes, strict=True):
            self._name(name, node, chain.source, channels.axis, size)

    def _input(self, part: OperatorPart, chain: Chain, channels: Channels) -> fx.Node:
        """Return what a part computes with, joined and cut as it needs it."""
        if part.inputs[0] in self._tensors:
            value = self._join(part.inputs, channels, chain.last)
        else:
            value = self._new[chain.source]
        if part.taken is None:
            return value
        begin, end = part.taken
        return self._own(self._call(torch.narrow, (value, channels.axis, begin, end - begin), chain.last))

    def _join(self, tensors: tuple[str, ...], channels: Channels, like: fx.Node) -> fx.Node:
        if len(tensors) == 1:
            return self._tensors[tensors[0]]
        if tensors not in self._joined:
            values = [self._tensors[name] for name in tensors]
            self._joined[tensors] = self._own(self._call(torch.cat, (values, channels.axis), like))
        return self._joined[tensors]

    # Nodes

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], like: fx.Node) -> fx.Node:
        node = self._graph.call_function(function, arguments)
        node.meta = dict(like.meta)
        return node

    def _own(self, node: fx.Node) -> fx.Node:
        """Let every operator that uses a node make it for itself."""
        self._free.add(node)
        return node

    def _rows(self, path: str, part: OperatorPart, like: fx.Node) -> fx.Node:
        name = self._names[id(self._captured.scope.tensor(path))]
        node = self._graph.create_node("get_attr", f"{MODEL}.{row_name(name, part)}")
        node.meta = dict(like.meta)
        return node

    def _name(self, name: str, node: fx.Node, like: fx.Node, axis: int, size: int) -> None:
        """Name a tensor that is a part of an old one, and say how large it is."""
        self._tensors[name] = node
        spec = self._old.cut.specs[like]
        shape = list(spec.shape)
        shape[axis] = Affine(size, 0)
        self._specs[node] = Spec(tuple(shape), spec.dtype, spec.order)
        if like in self._old.anchors:
            self._anchors[node] = replace(self._old.anchors[like], node=node)
