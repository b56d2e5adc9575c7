"""Cuts each rank's cells into segments: maximal runs of its operators in the one global topological order.

Runs of one order make an acyclic segment graph whatever the placement is, so playing tasks by their dependencies
cannot deadlock.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nfold.core.graph import ModelGraph, Tensor
from nfold.core.placement import Placement
from nfold.core.schedule import Segment

INPUTS = ("input", "target")
"""Names of the program's own tensors."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The segments of one rank, and which of them each chunk runs, in topological order."""

    segments: tuple[Segment, ...]
    by_chunk: dict[int, tuple[int, ...]]


def cut(graph: ModelGraph, placement: Placement) -> tuple[Cells, ...]:
    """Return the segments of every rank. O(operators x chunks)."""
    return tuple(_cut_rank(graph, placement, rank) for rank in range(placement.world_size))


def _cut_rank(graph: ModelGraph, placement: Placement, rank: int) -> Cells:
    index: dict[tuple[str, ...], int] = {}
    by_chunk = {
        chunk: tuple(index.setdefault(run, len(index)) for run in _runs(graph, placement, rank, chunk))
        for chunk in range(placement.num_chunks)
    }
    return Cells(tuple(_segment(graph, run) for run in index), {c: runs for c, runs in by_chunk.items() if runs})


def _runs(graph: ModelGraph, placement: Placement, rank: int, chunk: int) -> Iterator[tuple[str, ...]]:
    run: list[str] = []
    for operator in graph.operators:
        if placement.owners[operator.name][chunk] == rank:
            run.append(operator.name)
        elif run:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def _segment(graph: ModelGraph, run: tuple[str, ...]) -> Segment:
    inside = set(run)
    used = [name for operator in graph.operators if operator.name in inside for name in operator.inputs]
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    inputs = tuple(dict.fromkeys(name for name in used if not _made_in(tensors[name], inside)))
    outputs = tuple(
        tensor.name
        for tensor in graph.tensors
        if tensor.producer in inside and (tensor.name == graph.loss or set(tensor.consumers) - inside)
    )
    trains = any(parameter.has_gradient and inside & set(parameter.users) for parameter in graph.trained)
    backward = trains or any(tensors[name].requires_grad and tensors[name].producer for name in inputs)
    return Segment(operators=run, inputs=inputs, outputs=outputs, backward=backward)


def _made_in(tensor: Tensor, inside: set[str]) -> bool:
    return bool(tensor.producer) and tensor.producer in inside
