"""Groups a program's nodes into operators: the smallest pieces that may compute on different ranks.

    rule                                             why nodes stay together
    in-place      producer of a storage .. its last writer    a copy on another rank would miss the write
    no message    a value that is no plain tensor, or whose   only tensors of a known size can be sent
                  size follows no rule: with all its users
    region        one no_grad or autocast block               it is entered and left as a whole; autocast without a
                                                              cache of casts keeps nothing, and may be cut
    of a batch    a value that a batch has as a whole, with   each operator can be tried on parts of a batch
                  all its users; only where it is not proved
                  that samples do not see each other
    no cycle      groups that wait for each other             operators need an order

Some nodes belong to no operator, because every operator can have them for itself: the parts of a batch, parameters,
and sizes, which are computed from the number of samples.
"""

import graphlib
import heapq
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from nfold.capture.batches.sizes import Spec, fit_number, fit_tensor
from nfold.capture.program.program_graph import Traced
from nfold.capture.tracing.fx_tracing import TraceRefused
from nfold.capture.tracing.known_sizes import reads_size
from nfold.capture.tracing.observe import Play
from nfold.capture.tracing.value_sizes import ValueSizes


@dataclass(slots=True)
class Cut:
    """The nodes of a program in groups, each of which becomes an operator."""

    groups: list[tuple[fx.Node, ...]]
    """In one topological order; nodes in the order of the program."""
    sizes: dict[fx.Node, Any]
    """Nodes that only compute sizes, with the rule for each: see `fit_number`."""
    specs: dict[fx.Node, Spec]
    """Shape and type of every value that may cross a cut."""
    parts: set[fx.Node] = field(default_factory=set)
    """Nodes that take a batch apart, or join the parts that a value comes in."""

    def is_free(self, node: fx.Node) -> bool:
        """Whether each operator can compute a node for itself instead of receiving its result."""
        return node.op in ("placeholder", "get_attr") or node in self.sizes or node in self.parts

    def sources(self, node: fx.Node) -> Iterator[fx.Node]:
        """Yield what a node needs, looking through what it makes for itself."""
        for used in node.all_input_nodes:
            yield used
            if used in self.parts:
                yield from self.sources(used)


def cut(traced: Traced, plays: list[Play], *, whole: bool = False, is_proved: bool = True) -> Cut:
    """Group nodes by the rules. O(nodes x writers) at worst.

    Args:
        traced: the program.
        plays: what its nodes did.
        whole: put everything into one operator.
        is_proved: it is proved that samples do not see each other.

    Raises:
        TraceRefused: it writes to its input or to a tensor that the trace baked in.
    """
    result = Cut(groups=[], sizes=_size_nodes(traced, plays), specs=_specs(traced, plays), parts=_parts(traced, plays))
    nodes = [node for node in traced.nodes if not result.is_free(node)]
    groups = _Groups(nodes)
    if whole:
        groups.join(nodes)
    else:
        _join_writers(traced, plays, groups)
        _join_users([node for node in nodes if node not in result.specs], result, groups)
        if not is_proved:
            _join_users([node for node in nodes if _is_of_batch(node, result, plays)], result, groups)
        _join_regions(traced, nodes, groups)
    result.groups = groups.ordered(result)
    return result


class _Groups:
    """Disjoint sets of nodes (union-find)."""

    def __init__(self, nodes: list[fx.Node]) -> None:
        self._index = {node: index for index, node in enumerate(nodes)}
        self._nodes = nodes
        self._parent = list(range(len(nodes)))

    def join(self, nodes: Iterable[fx.Node]) -> None:
        """Put nodes into one group; those that no operator owns are passed over."""
        roots = [self._find(self._index[node]) for node in nodes if node in self._index]
        for root in roots:
            self._parent[root] = min(roots)

    def ordered(self, cut: Cut) -> list[tuple[fx.Node, ...]]:
        """Merge cycles away and return the groups, earliest first node first where the order is free."""
        while True:
            sorter = graphlib.TopologicalSorter(self._dependencies(cut))
            try:
                sorter.prepare()
            except graphlib.CycleError as error:
                self.join(self._nodes[root] for root in error.args[1])
                continue
            return self._in_order(sorter)

    def _find(self, index: int) -> int:
        while self._parent[index] != index:
            self._parent[index] = index = self._parent[self._parent[index]]
        return index

    def _dependencies(self, cut: Cut) -> dict[int, set[int]]:
        edges: dict[int, set[int]] = {self._find(index): set() for index in range(len(self._nodes))}
        for node, index in self._index.items():
            root = self._find(index)
            edges[root] |= {self._find(self._index[used]) for used in node.all_input_nodes if used in self._index}
            edges[root].discard(root)
        return edges

    def _in_order(self, sorter: "graphlib.TopologicalSorter[int]") -> list[tuple[fx.Node, ...]]:
        members: dict[int, list[fx.Node]] = {}
        for node, index in self._index.items():
            members.setdefault(self._find(index), []).append(node)
        ready, order = list(sorter.get_ready()), []
        heapq.heapify(ready)
        while ready:
            root = heapq.heappop(ready)
            order.append(tuple(members[root]))
            sorter.done(root)
            for other in sorter.get_ready():
                heapq.heappush(ready, other)
        return order


def _observed(plays: list[Play], node: fx.Node) -> list[tuple[int, Any]]:
    return [(play.size, play.nodes[node].value) for play in plays]


def _specs(traced: Traced, plays: list[Play]) -> dict[fx.Node, Spec]:
    fitted = {node: fit_tensor(_observed(plays, node)) for node in traced.nodes}
    return {node: spec for node, spec in fitted.items() if spec is not None}


def _size_nodes(traced: Traced, plays: list[Play]) -> dict[fx.Node, Any]:
    """Find sizes of tensors and what is computed from nothing but them."""
    sizes: dict[fx.Node, Any] = {}
    seen = plays[0].nodes
    by_values = ValueSizes(
        {node: each.reading for node, each in seen.items()}, {node: each.value for node, each in seen.items()}
    )
    for node in traced.nodes:
        if reads_size(node) and by_values.decide(node):
            continue
        if reads_size(node) or (node.all_input_nodes and all(used in sizes for used in node.all_input_nodes)):
            rule = fit_number(_observed(plays, node))
            if rule is not None:
                sizes[node] = rule
    return sizes


def _parts(traced: Traced, plays: list[Play]) -> set[fx.Node]:
    """Find the nodes that take a tuple or dict of inputs apart."""
    parts: set[fx.Node] = set()
    for node in traced.nodes:
        if node.op == "call_function" and node.target is operator.getitem:
            whole = node.args[0]
            if not isinstance(whole, fx.Node) or not (whole.op == "placeholder" or whole in parts):
                continue
            if isinstance(plays[0].nodes[whole].value, (tuple, list, dict)):
                parts.add(node)
    return parts


def _join_writers(traced: Traced, plays: list[Play], groups: _Groups) -> None:
    for play in plays:
        touching: dict[int, list[fx.Node]] = {}
        memory = _memory(traced, play)
        for node in traced.nodes:
            seen = play.nodes[node]
            for storage in {memory(each) for each in seen.storages | _given(node, play)}:
                touching.setdefault(storage, []).append(node)
            for storage in {memory(each) for each in seen.mutated}:
                _refuse_writing(touching[storage][0], node, traced)
                groups.join(touching[storage])


def _memory(traced: Traced, play: Play) -> Callable[[int], int]:
    """Return what names the memory of a storage: the same where one may be the other in a branch that was not taken."""
    same: dict[int, int] = {}

    def memory(storage: int) -> int:
        while storage in same:
            storage = same[storage]
        return storage

    for node in traced.nodes:
        if play.nodes[node].may_alias:
            first, *others = {memory(each) for each in play.nodes[node].storages | _given(node, play)} or {0}
            same |= dict.fromkeys(others, first)
    return memory


def _given(node: fx.Node, play: Play) -> frozenset[int]:
    return frozenset().union(*(play.nodes[used].storages for used in node.all_input_nodes))


def _refuse_writing(first: fx.Node, writer: fx.Node, traced: Traced) -> None:
    module = writer.meta.get("module", "")
    by = f"{writer.target if writer.op == 'call_method' else writer.name}{f' in {module}' if module else ''}"
    if first.op == "placeholder":
        raise TraceRefused(f"it changes its input in place, by {by}", exportable=False)
    if first.op == "get_attr" and first.target in traced.constants:
        raise TraceRefused(f"it changes a tensor that is made once, by {by}")


def _join_users(kept: list[fx.Node], result: Cut, groups: _Groups) -> None:
    for node in kept:
        groups.join([node, *(user for user in node.users if not result.is_free(user))])


def _is_of_batch(node: fx.Node, result: Cut, plays: list[Play]) -> bool:
    """Tell whether a value belongs to a batch as a whole: its size does not grow, and another batch has another one."""
    if node not in result.specs or any(line.slope for line in result.specs[node].shape):
        return False
    first, *others = (value for _, value in _observed(plays, node))
    return not all(torch.equal(first, other) for other in others)


def _join_regions(traced: Traced, nodes: list[fx.Node], groups: _Groups) -> None:
    usual = next(iter(traced.graph.nodes)).meta["region"]
    for node, following in itertools.pairwise(nodes):
        region = node.meta["region"]
        if region == following.meta["region"] != usual and not region.is_severable:
            groups.join([node, following])
