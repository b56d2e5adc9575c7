"""Turns a model, cut into chunks, into a hypergraph whose connectivity is the traffic of a step.

A vertex is a group of operators and a chunk, weighted by seconds. A net joins all cells that share something, and
costs what one more rank among them must be sent:

    activation   a cell that makes a tensor, and the cells that use it     the tensor, and its gradient back
    parameter    all cells that use it, of all chunks                      its gradient there, its value back
    statistics   all cells of a batch norm                                 a row per chunk
    input        a chunk's samples where they live, and who takes them     the samples

A net that lies on r ranks costs r - 1 times its bytes, whatever the layout is: data parallelism, a pipeline or any
mixture (the connectivity metric of Catalyurek and Aykanat 1999, over samples as well as operators). Nets over the
same cells are one net. The few bytes in which ranks agree on the norm of a gradient are no net.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nfold.core.graph import ModelGraph, Tensor
from nfold.core.placement import Placement
from nfold.planning.inputs.operator_groups import Groups, group_index
from nfold.planning.reductions.buckets import ITEM_BYTES
from nfold.planning.scheduling.segments import INPUTS

Seconds = Mapping[str, tuple[float, float]]
"""Forward and backward of each operator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Net:
    """Vertices that share a tensor or parameters, and the bytes that each block more among them costs."""

    num_bytes: int
    """Sent for each block but the first that it lies on."""
    pins: tuple[int, ...]
    """Vertices, ascending; two at least."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Bytes that every rank keeps that owns a cell of one of these groups, whatever the chunk."""

    num_bytes: int
    groups: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hypergraph:
    """The cells of a step. Vertex `group * num_chunks + chunk` is a cell; vertices after those are samples where they
    live."""

    groups: Groups
    num_chunks: int
    seconds: tuple[float, ...]
    """Of each vertex, forward and backward, on a reference node."""
    saved_bytes: tuple[int, ...]
    """Kept by each vertex from its forward to its backward."""
    nets: tuple[Net, ...]
    states: tuple[State, ...]
    fixed: dict[int, int]
    """Vertices that must be in a block."""

    @property
    def num_vertices(self) -> int:
        """The number of vertices: cells, and places of samples."""
        return len(self.seconds)

    @property
    def num_cells(self) -> int:
        """The number of vertices that are to be placed."""
        return len(self.groups) * self.num_chunks

    @property
    def row_seconds(self) -> list[float]:
        """The seconds of each group over all of its chunks. O(cells)."""
        chunks = self.num_chunks
        return [sum(self.seconds[row * chunks : (row + 1) * chunks]) for row in range(len(self.groups))]

    def with_samples(self, cells: Sequence[int]) -> list[int]:
        """Return the blocks of all vertices from those of the cells: samples stay on the ranks that have them."""
        return [*cells, *(self.fixed[vertex] for vertex in range(self.num_cells, self.num_vertices))]


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """The seconds and bytes of a model's cells."""

    seconds: Mapping[int, Seconds]
    """For each size of a chunk."""
    saved_bytes_per_sample: Mapping[str, float]
    """Of each operator."""
    state_factor: float
    """Bytes of memory for each byte of a trained parameter: value, gradient, optimizer's state."""


def build(
    graph: ModelGraph, groups: Groups, sizes: tuple[int, ...], costs: Costs, homes: tuple[int, ...] = ()
) -> Hypergraph:
    """Return the hypergraph of a model. O(operators x chunks).

    Args:
        graph: the model.
        groups: operators that are placed as one.
        sizes: samples of each chunk.
        costs: of its cells.
        homes: the block where each chunk's samples live; empty where all blocks can read them.
    """
    weights = [_group_seconds(group, costs.seconds[size]) if size else 0.0 for group in groups for size in sizes]
    saved = {group: sum(costs.saved_bytes_per_sample.get(name, 0.0) for name in group) for group in groups}
    num_cells = len(weights)
    return Hypergraph(
        groups=groups,
        num_chunks=len(sizes),
        seconds=(*weights, *(0.0 for _ in homes)),
        saved_bytes=(*(round(saved[group] * size) for group in groups for size in sizes), *(0 for _ in homes)),
        nets=_merged(_Nets(graph, groups, sizes, bool(homes)).all()),
        states=_states(graph, groups, costs.state_factor),
        fixed={num_cells + chunk: block for chunk, block in enumerate(homes)},
    )


def traffic(hypergraph: Hypergraph, blocks: Sequence[int]) -> int:
    """Return the bytes of one step that cross between blocks: connectivity minus one over all nets. O(pins)."""
    return sum(net.num_bytes * (len({blocks[pin] for pin in net.pins}) - 1) for net in hypergraph.nets)


def loads_s(hypergraph: Hypergraph, blocks: Sequence[int], num_blocks: int) -> list[float]:
    """Return the seconds of each block on a reference node."""
    loads = [0.0] * num_blocks
    for block, seconds in zip(blocks, hypergraph.seconds, strict=True):
        loads[block] += seconds
    return loads


def owners_of(hypergraph: Hypergraph, blocks: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the table of a placement: for each operator the block of each chunk."""
    chunks = hypergraph.num_chunks
    return {
        name: tuple(blocks[index * chunks : (index + 1) * chunks])
        for index, group in enumerate(hypergraph.groups)
        for name in group
    }


def blocks_of(hypergraph: Hypergraph, placement: Placement, seconds: Seconds) -> list[int]:
    """Return the blocks of a placement; a group that it cuts goes where its heaviest operator is."""
    blocks: list[int] = []
    for group in hypergraph.groups:
        heaviest = max(group, key=lambda name: sum(seconds[name]))
        blocks.extend(placement.owners[heaviest])
    return hypergraph.with_samples(blocks)


class _Nets:
    """Yields (bytes, vertices) of everything that cells share."""

    def __init__(self, graph: ModelGraph, groups: Groups, sizes: tuple[int, ...], have_homes: bool) -> None:
        self._graph, self._sizes, self._have_homes = graph, sizes, have_homes
        self._group = group_index(groups)
        self._num_groups = len(groups)

    def all(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Activations, parameters, statistics, samples."""
        for tensor in self._graph.tensors:
            if tensor.producer:
                yield from self._activations(tensor)
            elif self._have_homes and tensor.name in INPUTS:
                yield from self._samples(tensor)
        for parameter in self._graph.trained:
            yield 2 * parameter.num_bytes, self._columns(parameter.users)
        yield from self._statistics()

    def _activations(self, tensor: Tensor) -> Iterator[tuple[int, tuple[int, ...]]]:
        times = 2 if tensor.requires_grad else 1
        rows = sorted({self._group[name] for name in (tensor.producer, *tensor.consumers)})
        for chunk, size in enumerate(self._sizes):
            yield times * _payload(tensor, size), tuple(self._vertex(row, chunk) for row in rows)

    def _samples(self, tensor: Tensor) -> Iterator[tuple[int, tuple[int, ...]]]:
        rows = sorted({self._group[name] for name in tensor.consumers})
        for chunk, size in enumerate(self._sizes):
            users = (self._vertex(row, chunk) for row in rows)
            yield _payload(tensor, size), (*users, self._vertex(self._num_groups, chunk))

    def _statistics(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        known = {statistic.module: statistic for statistic in self._graph.statistics}
        filled = sum(size > 0 for size in self._sizes)
        for operator in self._graph.operators:
            if operator.statistics:
                elements = 2 * sum(known[module].num_channels for module in operator.statistics)
                item_bytes = ITEM_BYTES[known[operator.statistics[0]].dtype]
                yield filled * elements * item_bytes, self._columns((operator.name,))

    def _columns(self, operators: tuple[str, ...]) -> tuple[int, ...]:
        rows = sorted({self._group[name] for name in operators})
        return tuple(self._vertex(row, chunk) for row in rows for chunk in range(len(self._sizes)))

    def _vertex(self, row: int, chunk: int) -> int:
        return row * len(self._sizes) + chunk


def _payload(tensor: Tensor, size: int) -> int:
    return round(tensor.bytes_per_sample * size) + tensor.fixed_bytes if size else 0


def _merged(found: Iterator[tuple[int, tuple[int, ...]]]) -> tuple[Net, ...]:
    """Add up nets over the same vertices; one of a single vertex or without bytes costs nothing."""
    costs: dict[tuple[int, ...], int] = defaultdict(int)
    for num_bytes, pins in found:
        if num_bytes and len(pins) > 1:
            costs[pins] += num_bytes
    return tuple(Net(num_bytes=num_bytes, pins=pins) for pins, num_bytes in costs.items())


def _group_seconds(group: tuple[str, ...], seconds: Seconds) -> float:
    return sum(sum(seconds[name]) for name in group)


def _states(graph: ModelGraph, groups: Groups, factor: float) -> tuple[State, ...]:
    """Parameters of the same users are one state; a frozen one is its value only."""
    index = group_index(groups)
    sizes: dict[tuple[int, ...], float] = defaultdict(float)
    for parameter in graph.parameters:
        trained = parameter.trainable and parameter.has_gradient
        users = tuple(sorted({index[name] for name in parameter.users}))
        sizes[users] += parameter.num_bytes * (factor if trained else 1.0)
    return tuple(State(num_bytes=round(size), groups=users) for users, size in sizes.items() if users)
