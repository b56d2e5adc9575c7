"""Cuts each rank's cells into segments: runs of its operators in the one global topological order.

Runs of one order form an acyclic graph whatever the placement is, so tasks that are played by their dependencies cannot
deadlock. A run ends where the next operator belongs to another rank. It also ends before an operator that depends on
other operators outside the run than the run's first ones do, so that two parallel branches never wait for each other's
inputs.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from nfold.core.graph import ModelGraph, Operator, Tensor
from nfold.core.placement import Placement
from nfold.core.schedule import Segment

INPUTS = ("input", "target")
"""Names of the program's own tensors."""

Run = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankSegments:
    """The segments of one rank, and which of them each chunk runs, in topological order."""

    segments: tuple[Segment, ...]
    by_chunk: dict[int, tuple[int, ...]]


def cut(graph: ModelGraph, placement: Placement) -> tuple[RankSegments, ...]:
    """Return the segments of every rank, by rank; chunks with the same owners share segments. O(operators x chunks)."""
    columns: dict[tuple[int, ...], dict[int, list[Run]]] = {}
    index: list[dict[Run, int]] = [{} for _ in range(placement.world_size)]
    by_chunk: list[dict[int, tuple[int, ...]]] = [{} for _ in range(placement.world_size)]
    names = [operator.name for operator in graph.operators]
    before = _Before(graph)
    for chunk, column in enumerate(zip(*(placement.owners[name] for name in names), strict=True)):
        if column not in columns:
            columns[column] = _runs(names, column, before)
        for rank, runs in columns[column].items():
            by_chunk[rank][chunk] = tuple(index[rank].setdefault(run, len(index[rank])) for run in runs)
    book = _SegmentTable(graph)
    return tuple(
        RankSegments(tuple(book.segment(run) for run in runs), chunks)
        for runs, chunks in zip(index, by_chunk, strict=True)
    )


class _Before:
    """What comes before each operator, by its place in the order."""

    def __init__(self, graph: ModelGraph) -> None:
        places = {operator.name: place for place, operator in enumerate(graph.operators)}
        made_by = {tensor.name: places[tensor.producer] for tensor in graph.tensors if tensor.producer}
        self.makers = [{made_by[name] for name in operator.inputs if name in made_by} for operator in graph.operators]
        self.all: list[int] = []
        """Sets of places as the bits of a number."""
        for makers in self.makers:
            found = 0
            for maker in makers:
                found |= self.all[maker] | 1 << maker
            self.all.append(found)


def _runs(names: list[str], column: tuple[int, ...], before: _Before) -> dict[int, list[Run]]:
    """Return the runs of every rank in one chunk, in topological order."""
    found: dict[int, list[Run]] = {}
    for rank, places in itertools.groupby(range(len(names)), key=column.__getitem__):
        for run in _with_equal_waits(list(places), before):
            found.setdefault(rank, []).append(tuple(names[place] for place in run))
    return found


def _with_equal_waits(places: list[int], before: _Before) -> Iterator[list[int]]:
    """Cut a run before each operator that waits for more, or for less, than the run's first operators wait for."""
    run: list[int] = []
    waits = 0
    for place in places:
        made = sum(1 << maker for maker in before.makers[place] if not run or maker < run[0])
        if run and (made & ~before.all[run[0]] or waits & ~before.all[place]):
            yield run
            run, waits = [], 0
            made = sum(1 << maker for maker in before.makers[place])
        run.append(place)
        waits |= made
    yield run


class _SegmentTable:
    """Makes the segment of a run of operators, each once: ranks share them."""

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
