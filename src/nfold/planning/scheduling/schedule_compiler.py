"""Compiles a placement and its reductions into the tasks of one step.

    LOAD c ──> F s.c ──SEND/RECV activation──> F s'.c ──> loss
                                                 │
    UPDATE <── reduction <── B s.c <──SEND/RECV activation gradient── B s'.c

The expansion is pure and deterministic. The coordinator compiles it from the plan and sends each rank its own part.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from nfold.core.chunks import chunk_sizes
from nfold.core.graph import ModelGraph, Tensor
from nfold.core.placement import Placement, Reduction, Share
from nfold.core.schedule import RankSchedule, Schedule, StatisticsGroup
from nfold.core.tasks import (
    Backward,
    ChunkTensor,
    FoldStatistics,
    Forward,
    Load,
    OptimizerStep,
    Signal,
    Task,
)
from nfold.planning.reductions import ring_and_server_messages as messages
from nfold.planning.reductions.acknowledgements import acknowledge
from nfold.planning.reductions.buckets import completion, users_of
from nfold.planning.reductions.norm_messages import SummedPart, agree_on_norm
from nfold.planning.reductions.ring_and_server_messages import PlannedMessage
from nfold.planning.reductions.statistics_groups import statistics_groups
from nfold.planning.scheduling.cell_dependencies import CellDependencies
from nfold.planning.scheduling.garbage_collection import without_collecting
from nfold.planning.scheduling.order import Cell, order_cells
from nfold.planning.scheduling.segments import INPUTS, RankSegments, cut
from nfold.planning.scheduling.windows import busy_windows

T = TypeVar("T", bound=Task)


@without_collecting()
def compile_schedule(
    graph: ModelGraph,
    placement: Placement,
    reductions: tuple[Reduction, ...],
    *,
    batch_size: int,
    operator_seconds: Mapping[str, tuple[float, float]] | None = None,
    windows: Sequence[int] = (),
    paces: Sequence[float] = (),
    chunk_shares: Sequence[float] = (),
) -> Schedule:
    """Return the tasks of one training step, for every rank.

    Args:
        graph: the model.
        placement: which rank computes each operator for each chunk (micro-batch).
        reductions: how the gradients of each bucket are summed; together they hold every trained parameter once.
        batch_size: samples of a full step, for the payloads.
        operator_seconds: forward and backward seconds of each operator for one chunk. They order the cells and say when
            a bucket's gradients are complete. None: forward takes 1, backward 2.
        windows: of each rank, how many chunks it may have begun and not finished; empty: enough to be busy.
        paces: of each rank, its seconds over those; empty: 1.
        chunk_shares: of the batch; empty: chunks are equal.

    Raises:
        InternalError: cells wait for each other in a circle.
    """
    seconds = operator_seconds or {operator.name: (1.0, 2.0) for operator in graph.operators}
    limits = dict(enumerate(windows)) or busy_windows(graph, placement)
    slower = paces or (1.0,) * placement.world_size
    sizes = chunk_sizes(batch_size, placement.num_chunks, graph.least_chunk, chunk_shares)
    return _Compiler(graph, placement, reductions, sizes, seconds, limits, slower).compile()


class _Compiler:
    """Collects tasks rank by rank; the order of calls fixes ids and tags."""

    def __init__(
        self,
        graph: ModelGraph,
        placement: Placement,
        reductions: tuple[Reduction, ...],
        sizes: tuple[int, ...],
        seconds: Mapping[str, tuple[float, float]],
        windows: Mapping[int, int],
        paces: Sequence[float],
    ) -> None:
        self._graph, self._placement, self._reductions = graph, placement, reductions
        self._sizes, self._seconds, self._windows, self._paces = sizes, seconds, windows, paces
        self._cells = cut(graph, placement)
        self._dependencies = CellDependencies(graph, self._cells)
        self._events = [0] * placement.world_size
        self._tasks: list[list[Task]] = [[] for _ in range(placement.world_size)]
        self._network = messages.MessageWriter(self._add)
        self._done: dict[Cell, int] = {}
        self._signals: dict[Cell, list[Signal]] = defaultdict(list)
        self._ready: dict[str, dict[int, tuple[int, ...]]] = {}

    def compile(self) -> Schedule:
        """Expand cells, then reductions, then statistics, then what keeps ranks together."""
        after = self._dependencies.after()
        order = order_cells(after, {cell: self._cell_seconds(cell) for cell in after}, self._windows)
        self._reserve(order)
        self._add_signals()
        received = self._add_messages()
        for rank, cells in order.items():
            self._add_cells(rank, cells, received)
        self._add_updates()
        groups = self._add_statistics()
        acknowledge(self._tasks, self._network)
        ranks = tuple(
            RankSchedule(
                rank=rank,
                segments=self._cells[rank].segments,
                tasks=tuple(self._tasks[rank]),
                num_events=self._events[rank],
                num_tags=self._network.num_tags,
                statistics=groups,
            )
            for rank in range(self._placement.world_size)
        )
        return Schedule(num_chunks=self._placement.num_chunks, ranks=ranks)

    # Cells

    def _cell_seconds(self, cell: Cell) -> float:
        operators = self._dependencies.segment(cell).operators
        return self._paces[cell.rank] * sum(self._seconds[operator][cell.backward] for operator in operators)

    def _reserve(self, order: Mapping[int, tuple[Cell, ...]]) -> None:
        """Give every cell its event before any task names it."""
        for rank, cells in order.items():
            for cell in cells:
                self._done[cell] = self._event(rank)

    def _add_cells(self, rank: int, cells: tuple[Cell, ...], received: Mapping[Cell, list[int]]) -> None:
        loads: dict[int, int] = {}
        for cell in cells:
            segment = self._dependencies.segment(cell)
            after = [self._done[before] for before in self._local_before(cell)] + received.get(cell, [])
            if not cell.backward and set(segment.inputs) & set(INPUTS):
                if cell.chunk not in loads:
                    loads[cell.chunk] = self._add(rank, Load, chunk=cell.chunk).id
                after.append(loads[cell.chunk])
            fields: dict[str, Any] = {"chunk": cell.chunk, "segment": cell.segment, "after": tuple(sorted(after))}
            if cell.backward:
                signals = tuple(self._signals.get(cell, ()))
                self._add(rank, Backward, event=self._done[cell], signals=signals, **fields)
            else:
                self._add(rank, Forward, event=self._done[cell], **fields)

    def _local_before(self, cell: Cell) -> set[Cell]:
        if cell.backward:
            before = {cell._replace(backward=False), *self._dependencies.users(cell)}
        else:
            before = set(self._dependencies.makers(cell))
        return {each for each in before if each.rank == cell.rank}

    # Activations and their gradients

    def _add_messages(self) -> dict[Cell, list[int]]:
        """Send every tensor once to each rank that uses it, and one activation gradient back from each of those."""
        received: dict[Cell, list[int]] = defaultdict(list)
        for (name, chunk), producer in self._dependencies.made.items():
            for rank, users in self._dependencies.remote_takers(name, chunk).items():
                what = ChunkTensor(name, chunk), self._payload(self._dependencies.tensors[name], chunk)
                forth = PlannedMessage(producer.rank, rank, "activation", *what)
                _, receive = self._network.send(forth, (self._done[producer],))
                for user in users:
                    received[user].append(receive.id)
                if not self._dependencies.flows_back(name):
                    continue
                after = tuple(self._done[Cell(rank, True, chunk, user.segment)] for user in users)
                back = PlannedMessage(rank, producer.rank, "activation gradient", *what)
                _, receive = self._network.send(back, after)
                received[Cell(producer.rank, True, chunk, producer.segment)].append(receive.id)
        return received

    def _payload(self, tensor: Tensor, chunk: int) -> int:
        size = self._sizes[chunk]
        return round(tensor.bytes_per_sample * size) + tensor.fixed_bytes if size else 0

    # Reductions

    def _add_signals(self) -> None:
        """A bucket is complete on a rank when the last backward cell that feeds it has passed its first layer."""
        for reduction in self._reductions:
            self._ready[reduction.name] = {}
            for rank in reduction.members:
                events = [self._signal(cell, reduction) for cell in self._feeders(rank, reduction)]
                self._ready[reduction.name][rank] = tuple(events)

    def _feeders(self, rank: int, reduction: Reduction) -> list[Cell]:
        users = users_of(self._graph, reduction)
        cells = self._cells[rank]
        return [
            Cell(rank, True, chunk, index)
            for chunk, indices in cells.by_chunk.items()
            for index in indices
            if cells.segments[index].backward and users & set(cells.segments[index].operators)
        ]

    def _signal(self, cell: Cell, reduction: Reduction) -> int:
        """The event of a bucket's completion within a backward cell: the end of it for a purely local bucket."""
        if reduction.route == "local" or self._graph.update_scope == "model":
            return self._done[cell]
        event = self._event(cell.rank)
        operators = self._dependencies.segment(cell).operators
        fraction = completion(operators, users_of(self._graph, reduction), self._seconds)
        self._signals[cell].append(Signal(event=event, reduction=reduction.name, fraction=fraction))
        return event

    def _add_updates(self) -> None:
        sums = [each for reduction in self._reductions for each in self._sums(reduction)]
        if self._graph.clips_gradients:
            known = agree_on_norm(sums, self._network, self._add)
            sums = [replace(each, after=(*each.after, *known[each.share.rank])) for each in sums]
        joint = self._graph.update_scope == "model"
        updated = self._add_joint_updates(sums) if joint else [self._add_update(each) for each in sums]
        values: dict[str, dict[Share, tuple[int, ...]]] = defaultdict(dict)
        for each, task in zip(sums, updated, strict=True):
            values[each.reduction.name][each.share] = (task.id,)
        for reduction in self._reductions:
            if reduction.route == "server":
                messages.pull(reduction, values[reduction.name], self._network)

    def _add_update(self, summed: SummedPart) -> OptimizerStep:
        return self._add(summed.share.rank, OptimizerStep, gradients=summed.gradients, after=summed.after)

    def _sums(self, reduction: Reduction) -> list[SummedPart]:
        """Return what each rank updates, and the events after which it is summed there."""
        ready = self._ready[reduction.name]
        if reduction.route == "server":
            return [SummedPart(reduction, *each) for each in messages.push(reduction, ready, self._network).items()]
        sums = messages.ring(reduction, ready, self._network) if reduction.route == "ring" else ready
        return [
            SummedPart(reduction, Share(rank=rank, start=0, stop=reduction.num_elements), sums[rank]) for rank in sums
        ]

    def _add_joint_updates(self, sums: Sequence[SummedPart]) -> list[OptimizerStep]:
        """Update each rank's buckets in one task, for an optimizer that must see all parameters at once.

        Returns:
            For each sum the task that updates it.
        """
        events: dict[int, list[int]] = defaultdict(list)
        for each in sums:
            events[each.share.rank].extend(each.after)
        updated = {
            rank: self._add(rank, OptimizerStep, gradients=None, after=tuple(dict.fromkeys(after)))
            for rank, after in sorted(events.items())
        }
        return [updated[each.share.rank] for each in sums]

    # Batch statistics

    def _add_statistics(self) -> tuple[StatisticsGroup, ...]:
        """Every owner of a batch norm gets all chunks' statistics, so that replicas keep equal running averages."""
        is_exact = any(each.fraction_bits is not None for each in self._reductions)
        groups = statistics_groups(self._graph, self._placement, also_alone=is_exact)
        for group in groups:
            owners = self._placement.owners[group.operators[0]]
            arrived: dict[int, list[int]] = {rank: [] for rank in group.members}
            for chunk, owner in enumerate(owners):
                made = self._statistics_made(group, owner, chunk)
                for rank in group.members:
                    if rank != owner:
                        arrived[rank].append(self._send_statistics(group, chunk, owner, rank, made))
                    else:
                        arrived[rank].extend(made)
            for rank in group.members:
                rows = tuple(dict.fromkeys(arrived[rank]))
                self._add(rank, FoldStatistics, group=group.name, after=rows)
        return groups

    def _statistics_made(self, group: StatisticsGroup, rank: int, chunk: int) -> tuple[int, ...]:
        cells: RankSegments = self._cells[rank]
        inside = set(group.operators)
        return tuple(
            self._done[Cell(rank, False, chunk, index)]
            for index in cells.by_chunk[chunk]
            if inside & set(cells.segments[index].operators)
        )

    def _send_statistics(
        self, group: StatisticsGroup, chunk: int, source: int, target: int, after: tuple[int, ...]
    ) -> int:
        payload_bytes = group.num_elements * group.item_bytes if self._sizes[chunk] else 0
        message = PlannedMessage(source, target, "statistics", group.row(chunk), payload_bytes)
        return self._network.send(message, after)[1].id

    # Tasks

    def _event(self, rank: int) -> int:
        self._events[rank] += 1
        return self._events[rank] - 1

    def _add(self, rank: int, kind: type[T], *, event: int | None = None, **fields: Any) -> T:
        task = kind(id=self._event(rank) if event is None else event, **fields)
        self._tasks[rank].append(task)
        return task
