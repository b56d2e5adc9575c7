"""Joins operators into runs that are placed as one, and adds up what spans of runs cost.

A run is consecutive in the topological order: an operator that takes time, with the weightless ones (reshapes,
activations) on either side of it up to the place that the fewest bytes cross. What a stage of a pipeline costs depends
on its span of runs alone, so it is added up once for all of them, in arrays that are indexed [first run, run behind
the last one].
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nfold.core.chunks import chunk_sizes
from nfold.core.graph import ModelGraph, Parameter, Tensor
from nfold.planning.inputs.operator_groups import LIGHT
from nfold.planning.reductions.buckets import ITEM_BYTES

Array = NDArray[np.float64]
Runs = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spans:
    """The bytes that every span of runs exchanges with the rest of the model in a step, and those that it keeps."""

    runs: Runs
    arriving_bytes: Array
    """Activations made before it that it uses."""
    returned_bytes: Array
    """Their gradients, which it sends back."""
    leaving_bytes: Array
    """Activations that it makes and later ones use, each counted once."""
    awaited_bytes: Array
    """Their gradients."""
    first_bytes: Array
    """Trained parameters whose first user is in it."""
    tied_bytes: Array
    """Trained parameters that it uses too, but not first."""
    frozen_bytes: Array
    """Parameters that get no gradient."""
    statistics_bytes: Array
    """Rows of batch statistics that all its chunks make together."""
    reads: Array
    """Whether it takes the program's inputs or targets: 1 or 0."""

    def traffic_bytes(self, replicas: int) -> Array:
        """Return by span the bytes that it adds to a step as a stage of so many ranks that share its chunks.

        Summed over the stages it is exactly what the messages of the step add up to.
        """
        summed = 2 * (replicas - 1) * self.first_bytes + 2 * replicas * self.tied_bytes
        return self.arriving_bytes + self.returned_bytes + summed + (replicas - 1) * self.statistics_bytes


def join_runs(graph: ModelGraph, seconds: Mapping[str, float], most: int) -> Runs:
    """Join operators into at most so many runs.

    Args:
        graph: the model.
        seconds: of each operator.
        most: runs.

    Returns:
        Every operator once, in order. Operators that update the same batch statistics, or other state of one module,
        are in one run, since they must be placed together.
    """
    position = {operator.name: index for index, operator in enumerate(graph.operators)}
    crossing = _crossing_bytes(graph, position)
    times = [seconds[operator.name] for operator in graph.operators]
    heavy = [index for index, time_s in enumerate(times) if time_s > LIGHT * sum(times)]
    cuts = []
    for before, after in itertools.pairwise(heavy):
        places = [place for place in range(before + 1, after + 1) if crossing[place] is not None]
        if places:
            cuts.append(min(places, key=lambda place: (crossing[place], -place)))
    edges = [0, *_thin(cuts, times, most), len(times)]
    names = [operator.name for operator in graph.operators]
    return tuple(tuple(names[start:stop]) for start, stop in itertools.pairwise(edges))


def _crossing_bytes(graph: ModelGraph, position: Mapping[str, int]) -> list[float | None]:
    """Bytes per sample that cross each place between operators; None where no cut may be."""
    crossing: list[float | None] = [0.0] * (len(graph.operators) + 1)
    for tensor in graph.tensors:
        if tensor.producer and tensor.consumers:
            last = max(position[user] for user in tensor.consumers)
            for place in range(position[tensor.producer] + 1, last + 1):
                crossing[place] = (crossing[place] or 0.0) + tensor.bytes_per_sample + tensor.fixed_bytes
    callers: dict[str, list[int]] = {}
    for index, operator in enumerate(graph.operators):
        for module in operator.shared:
            callers.setdefault(module, []).append(index)
    for calls in callers.values():
        crossing[min(calls) + 1 : max(calls) + 1] = [None] * (max(calls) - min(calls))
    return crossing


def _thin(cuts: list[int], times: list[float], most: int) -> list[int]:
    """Leave out cuts until there are at most so many runs, each about as long as the others."""
    if len(cuts) < most:
        return cuts
    grain, since = sum(times) / most, 0
    kept: list[int] = []
    for cut in cuts:
        if sum(times[since:cut]) >= grain and len(kept) < most - 1:
            kept.append(cut)
            since = cut
    return kept


def add_up(graph: ModelGraph, runs: Runs, batch_size: int, num_chunks: int) -> Spans:
    """Return the bytes of every span of runs in a step. O((tensors + parameters) x runs^2).

    Args:
        graph: whole operators, or parts of them.
        runs: in the order of the operators.
        batch_size: samples of the step.
        num_chunks: that these are cut into.
    """
    adder = _Adder(graph, runs, chunk_sizes(batch_size, num_chunks, graph.least_chunk))
    trained = {parameter.name for parameter in graph.trained}
    frozen = [each for each in graph.parameters if each.users and each.name not in trained]
    return Spans(
        runs=runs,
        arriving_bytes=adder.arriving(gradients=False),
        returned_bytes=adder.arriving(gradients=True),
        leaving_bytes=adder.leaving(gradients=False),
        awaited_bytes=adder.leaving(gradients=True),
        first_bytes=adder.first(graph.trained),
        tied_bytes=adder.tied(graph.trained),
        frozen_bytes=adder.first(frozen) + adder.tied(frozen),
        statistics_bytes=adder.statistics(),
        reads=np.minimum(adder.reads(), 1.0),
    )


def interval_sums(values: Sequence[float]) -> Array:
    """Return the sum of values [i, j) for every i <= j, and 0 elsewhere."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.triu(total[None, :] - total[:, None])


class _Adder:
    """Adds up one quantity at a time."""

    def __init__(self, graph: ModelGraph, runs: Runs, sizes: tuple[int, ...]) -> None:
        self._graph, self._sizes = graph, sizes
        self._run_of = {name: index for index, run in enumerate(runs) for name in run}
        self._count = len(runs)

    def arriving(self, *, gradients: bool) -> Array:
        total = self._zeros()
        for tensor in self._moved(gradients):
            self._add_users(total, self._run_of[tensor.producer], self._users(tensor), self._bytes(tensor))
        return total

    def leaving(self, *, gradients: bool) -> Array:
        total = self._zeros()
        for tensor in self._moved(gradients):
            producer = self._run_of[tensor.producer]
            total[: producer + 1, producer + 1 : max(self._users(tensor)) + 1] += self._bytes(tensor)
        return total

    def first(self, parameters: Sequence[Parameter]) -> Array:
        values = [0.0] * self._count
        for parameter in parameters:
            values[min(self._run_of[user] for user in parameter.users)] += parameter.num_bytes
        return interval_sums(values)

    def tied(self, parameters: Sequence[Parameter]) -> Array:
        total = self._zeros()
        for parameter in parameters:
            users = sorted({self._run_of[user] for user in parameter.users})
            self._add_users(total, users[0], users[1:], parameter.num_bytes)
        return total

    def statistics(self) -> Array:
        row_bytes = {each.module: 2 * each.num_channels * ITEM_BYTES[each.dtype] for each in self._graph.statistics}
        values = [0.0] * self._count
        for operator in self._graph.operators:
            values[self._run_of[operator.name]] += sum(row_bytes[module] for module in operator.statistics)
        return interval_sums(values) * sum(size > 0 for size in self._sizes)

    def reads(self) -> Array:
        values = [0.0] * self._count
        for tensor in self._graph.tensors:
            for user in tensor.consumers if not tensor.producer else ():
                values[self._run_of[user]] += 1.0
        return interval_sums(values)

    def _zeros(self) -> Array:
        return np.zeros((self._count + 1, self._count + 1))

    def _moved(self, gradients: bool) -> list[Tensor]:
        return [
            tensor
            for tensor in self._graph.tensors
            if tensor.producer and tensor.consumers and (tensor.requires_grad or not gradients)
        ]

    def _users(self, tensor: Tensor) -> list[int]:
        return sorted({self._run_of[user] for user in tensor.consumers})

    def _bytes(self, tensor: Tensor) -> float:
        return sum(round(tensor.bytes_per_sample * size) + tensor.fixed_bytes for size in self._sizes if size)

    @staticmethod
    def _add_users(total: Array, origin: int, users: list[int], num_bytes: float) -> None:
        """Count something once for every span behind `origin` that has a user of it."""
        before = origin
        for user in users:
            if user > origin:
                total[before + 1 : user + 1, user + 1 :] += num_bytes
                before = user
