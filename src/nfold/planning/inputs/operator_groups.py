"""Joins operators that cost next to nothing with a neighbour, so that a partitioner weighs only what matters.

    conv ─> norm ─> relu ─> pool ─> conv        becomes        conv+norm+relu+pool ─> conv

A light operator rides with the producer of its largest input; where it makes its tensor larger, with its consumer;
where it has no producer, with its first consumer.
"""

from collections.abc import Mapping

from nfold.core.graph import ModelGraph, Operator

LIGHT = 1e-3
"""Share of a step's seconds below which an operator is weightless."""

Groups = tuple[tuple[str, ...], ...]


def coarsen(graph: ModelGraph, seconds: Mapping[str, float], most_groups: int) -> Groups:
    """Return groups of operators that are placed as one, each in topological order.

    Operators that update one batch norm's statistics, or other state of one module, are always one group, since they
    must be placed together.

    Args:
        graph: the model.
        seconds: of each operator, forward and backward.
        most_groups: what counts as light is raised until there are no more groups, as long as none grows to twice
            the mean of so many.
    """
    total = sum(seconds.values())
    threshold = LIGHT
    while True:
        groups = _Joining(graph, seconds, heaviest=2 * total / most_groups).join(threshold * total)
        if len(groups) <= most_groups or threshold >= 1:
            return groups
        threshold *= 2


def group_index(groups: Groups) -> dict[str, int]:
    """Return the group of every operator."""
    return {name: index for index, names in enumerate(groups) for name in names}


class _Joining:
    """A union of operators, by the first one of each group."""

    def __init__(self, graph: ModelGraph, seconds: Mapping[str, float], heaviest: float) -> None:
        self._graph, self._seconds, self._heaviest = graph, seconds, heaviest
        self._tensors = {tensor.name: tensor for tensor in graph.tensors}
        self._root = {operator.name: operator.name for operator in graph.operators}
        self._weight = dict(seconds)

    def join(self, light_s: float) -> Groups:
        """Join what must be and what is light; return the groups by their first operators."""
        self._join_shared()
        weightless_s = LIGHT * sum(self._seconds.values())
        for operator in self._graph.operators:
            companion = self._companion(operator) if self._seconds[operator.name] <= light_s else None
            if companion is not None:
                limit = None if self._seconds[operator.name] <= weightless_s else self._heaviest
                self._unite(companion, operator.name, limit)
        grouped: dict[str, list[str]] = {}
        for operator in self._graph.operators:
            grouped.setdefault(self._find(operator.name), []).append(operator.name)
        return tuple(tuple(names) for names in grouped.values())

    def _join_shared(self) -> None:
        first: dict[str, str] = {}
        for operator in self._graph.operators:
            for module in operator.shared:
                self._unite(first.setdefault(module, operator.name), operator.name, None)

    def _companion(self, operator: Operator) -> str | None:
        made = [self._tensors[name] for name in operator.inputs if self._tensors[name].producer]
        users = [user for name in operator.outputs for user in self._tensors[name].consumers]
        if not made:
            return users[0] if users else None
        largest = max(made, key=lambda tensor: tensor.bytes_per_sample)
        grown = sum(self._tensors[name].bytes_per_sample for name in operator.outputs)
        return users[0] if len(set(users)) == 1 and grown > largest.bytes_per_sample else largest.producer

    def _find(self, name: str) -> str:
        while self._root[name] != name:
            self._root[name] = name = self._root[self._root[name]]
        return name

    def _unite(self, first: str, second: str, heaviest: float | None) -> None:
        left, right = self._find(first), self._find(second)
        if left == right or (heaviest is not None and self._weight[left] + self._weight[right] > heaviest):
            return
        self._root[right] = left
        self._weight[left] += self._weight[right]
