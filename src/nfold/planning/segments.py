"""Cuts each rank's cells into segments: maximal runs of its operators in the one global topological order.

Runs of one order make an acyclic segment graph whatever the placement is, so playing tasks by their dependencies
cannot deadlock.
"""

import itertools
from dataclasses import dataclass

from nfold.core.graph import ModelGraph, Operator, Tensor
from nfold.core.placement import Placement
from nfold.core.schedule import Segment

INPUTS = ("input", "target")
"""Names of the program's own tensors."""

Run = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """The segments of one rank, and which of them each chunk runs, in topological order."""

    segments: tuple[Segment, ...]
    by_chunk: dict[int, tuple[int, ...]]


def cut(graph: ModelGraph, placement: Placement) -> tuple[Cells, ...]:
    """Return the segments of every rank. O(operators x chunks)."""
    columns: dict[tuple[int, ...], dict[int, list[Run]]] = {}
    index: list[dict[Run, int]] = [{} for _ in range(placement.world_size)]
    by_chunk: list[dict[int, tuple[int, ...]]] = [{} for _ in range(placement.world_size)]
    names = [operator.name for operator in graph.operators]
    for chunk, column in enumerate(zip(*(placement.owners[name] for name in names), strict=True)):
        if column not in columns:
            columns[column] = _runs(names, column)
        for rank, runs in columns[column].items():
            by_chunk[rank][chunk] = tuple(index[rank].setdefault(run, len(index[rank])) for run in runs)
    book = _Book(graph)
    return tuple(
        Cells(tuple(book.segment(run) for run in runs), chunks) for runs, chunks in zip(index, by_chunk, strict=True)
    )


def _runs(names: list[str], column: tuple[int, ...]) -> dict[int, list[Run]]:
    """Return the runs of every rank in one chunk, in topological order."""
    found: dict[int, list[Run]] = {}
    for rank, run in itertools.groupby(zip(names, column, strict=True), key=lambda pair: pair[1]):
        found.setdefault(rank, []).append(tuple(name for name, _ in run))
    return found


class _Book:
    """Looks up what makes a run of operators a segment; ranks share segments."""

    def __init__(self, graph: ModelGraph) -> None:
        self._loss = graph.loss
        self._operators: dict[str, Operator] = {operator.name: operator for operator in graph.operators}
        self._tensors: dict[str, Tensor] = {tensor.name: tensor for tensor in graph.tensors}
        self._position = {tensor.name: position for position, tensor in enumerate(graph.tensors)}
        self._trained = {user for each in graph.trained if each.has_gradient for user in each.users}
        self._known: dict[Run, Segment] = {}

    def segment(self, run: Run) -> Segment:
        if run not in self._known:
            self._known[run] = self._make(run)
        return self._known[run]

    def _make(self, run: Run) -> Segment:
        inside = set(run)
        used = dict.fromkeys(name for operator in run for name in self._operators[operator].inputs)
        inputs = tuple(name for name in used if self._tensors[name].producer not in inside)
        made = (self._tensors[name] for operator in run for name in self._operators[operator].outputs)
        left = [each.name for each in made if each.name == self._loss or not inside.issuperset(each.consumers)]
        outputs = tuple(sorted(left, key=self._position.__getitem__))
        trains = not inside.isdisjoint(self._trained)
        backward = trains or any(self._tensors[name].requires_grad and self._tensors[name].producer for name in inputs)
        return Segment(operators=run, inputs=inputs, outputs=outputs, backward=backward)
