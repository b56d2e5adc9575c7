"""Plays a schedule on whole numbers, in any order that core/schedule.py allows, and checks each task as it comes.

The numbers are exact, so a sum is right or wrong; the order is drawn from a seeded generator, so a schedule that only
works when messages are quick is found out.
"""

import random
from collections import defaultdict

from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement, Reduction
from nfold.core.schedule import RankSchedule, Schedule
from nfold.core.tasks import (
    Backward,
    ChunkTensor,
    Elements,
    FindClipFactor,
    FoldStatistics,
    Forward,
    Load,
    MessageEnd,
    OptimizerStep,
    Receive,
    Send,
    SumSquares,
    Task,
)

Numbers = list[int]


def contribution(operator: str, chunk: int, parameter: str, num_elements: int) -> Numbers:
    """A cell's gradient of one of its parameters: as good as unique."""
    generator = random.Random(f"{operator} {chunk} {parameter}")
    return [generator.randrange(1, 1 << 40) for _ in range(num_elements)]


class Referee:
    """One game: `play` it, then look at what every rank ended with."""

    def __init__(
        self, graph: ModelGraph, placement: Placement, reductions: tuple[Reduction, ...], schedule: Schedule, seed: int
    ) -> None:
        self._graph, self._placement, self._schedule = graph, placement, schedule
        self._reductions = {reduction.name: reduction for reduction in reductions}
        self._tensors = {tensor.name: tensor for tensor in graph.tensors}
        self._groups = {group.name: group for group in schedule.statistics}
        self._random = random.Random(seed)
        self._happened: list[set[int]] = [set() for _ in schedule.ranks]
        self._lane = [[task for task in rank.tasks if not isinstance(task, MessageEnd)] for rank in schedule.ranks]
        self._left = [{task.id: task for task in rank.tasks if isinstance(task, MessageEnd)} for rank in schedule.ranks]
        self._wire: dict[tuple[int, int, int], tuple[Send, object]] = {}
        self._has: list[set[object]] = [set() for _ in schedule.ranks]
        self._held: dict[tuple[int, int], Numbers] = {}
        self._rows: list[set[tuple[str, int]]] = [set() for _ in schedule.ranks]
        self.gradients = [self._zeros() for _ in schedule.ranks]
        self.values: list[dict[str, list[int | None]]] = [
            {name: [None] * each.num_elements for name, each in self._reductions.items()} for _ in schedule.ranks
        ]
        self.sent_elements: dict[tuple[int, str], int] = defaultdict(int)
        self.counted: list[list[tuple[str, int]]] = [[] for _ in schedule.ranks]
        """Elements whose squares a rank has, its own and those of others."""
        self.knows_factor: set[int] = set()

    def _zeros(self) -> dict[str, Numbers]:
        return {name: [0] * each.num_elements for name, each in self._reductions.items()}

    def exact_sum(self, reduction: Reduction) -> Numbers:
        """The sum over all users and chunks."""
        parameters = {parameter.name: parameter for parameter in self._graph.parameters}
        total: Numbers = []
        for name in reduction.parameters:
            each = parameters[name]
            parts = [
                contribution(user, chunk, name, each.num_elements)
                for user in each.users
                for chunk in range(self._placement.num_chunks)
            ]
            total += [sum(column) for column in zip(*parts, strict=True)]
        return total

    def play(self) -> None:
        """Play to the end; a rank that can go no further is a deadlock."""
        while True:
            moves = [move for rank in self._schedule.ranks for move in self._moves(rank.rank)]
            if not moves:
                break
            rank, task = self._random.choice(moves)
            getattr(self, f"_play_{type(task).__name__}")(rank, task)
            self._happened[rank].add(task.id)
        stuck = [task.name for tasks in (*self._lane, *(left.values() for left in self._left)) for task in tasks]
        assert not stuck, f"deadlock: {stuck}"
        assert not self._wire, "sent, but never received"
        assert not self._held, "kept aside, but never added"

    def _moves(self, rank: int) -> list[tuple[int, Task]]:
        tasks = [*self._lane[rank][:1], *self._left[rank].values()]
        return [
            (rank, task) for task in tasks if set(task.after) <= self._happened[rank] and self._is_there(rank, task)
        ]

    def _is_there(self, rank: int, task: Task) -> bool:
        return task.kind != "RECV" or (task.peer, rank, task.tag) in self._wire

    # Computing

    def _play_Load(self, rank: int, task: Load) -> None:
        self._lane[rank].pop(0)
        self._has[rank].add(("batch", task.chunk))

    def _play_Forward(self, rank: int, task: Forward) -> None:
        self._lane[rank].pop(0)
        segment = self._schedule.ranks[rank].segments[task.segment]
        for name in segment.inputs:
            wanted = (name, task.chunk) if self._tensors[name].producer else ("batch", task.chunk)
            assert wanted in self._has[rank], f"{task.name} on {rank} lacks {wanted}"
        self._has[rank] |= {(name, task.chunk) for name in segment.outputs}
        self._has[rank] |= {("F", name, task.chunk) for name in segment.operators}
        self._rows[rank] |= {
            (group.name, task.chunk)
            for group in self._schedule.statistics
            if all(("F", operator, task.chunk) in self._has[rank] for operator in group.operators)
        }

    def _play_Backward(self, rank: int, task: Backward) -> None:
        self._lane[rank].pop(0)
        segment = self._schedule.ranks[rank].segments[task.segment]
        assert {("F", name, task.chunk) for name in segment.operators} <= self._has[rank]
        for name in segment.outputs:
            tensor = self._tensors[name]
            for user in tensor.consumers if tensor.requires_grad else ():
                owner = self._placement.owners[user][task.chunk]
                wanted = ("B", user, task.chunk) if owner == rank else ("activation gradient", name, task.chunk, owner)
                assert user in segment.operators or wanted in self._has[rank], f"{task.name} on {rank} lacks {wanted}"
        signalled = {signal.reduction for signal in task.signals}
        for signal in task.signals:
            self._accumulate(rank, task, self._reductions[signal.reduction], segment.operators)
            self._happened[rank].add(signal.event)
        for reduction in self._reductions.values():
            if reduction.name not in signalled and rank in reduction.members:
                self._accumulate(rank, task, reduction, segment.operators)
        self._has[rank] |= {("B", name, task.chunk) for name in segment.operators}

    def _accumulate(self, rank: int, task: Backward, reduction: Reduction, operators: tuple[str, ...]) -> None:
        parameters = {parameter.name: parameter for parameter in self._graph.parameters}
        gradient, offset = self.gradients[rank][reduction.name], 0
        for name in reduction.parameters:
            each = parameters[name]
            for user in set(each.users) & set(operators):
                for index, number in enumerate(contribution(user, task.chunk, name, each.num_elements)):
                    gradient[offset + index] += number
            offset += each.num_elements

    def _play_FoldStatistics(self, rank: int, task: FoldStatistics) -> None:
        self._lane[rank].pop(0)
        rows = {(task.group, chunk) for chunk in range(self._schedule.num_chunks)}
        assert rows <= self._rows[rank], f"{task.name} on {rank} lacks rows"

    def _play_OptimizerStep(self, rank: int, task: OptimizerStep) -> None:
        self._lane[rank].pop(0)
        assert rank in self.knows_factor or not self._graph.clips_gradients
        part = task.gradients
        for name, reduction in self._reductions.items():
            updates = self._updates(rank, reduction)
            if part is not None:
                assert part.name != name or (part.start, part.stop) in updates
                updates = [(part.start, part.stop)] if part.name == name else []
            for start, stop in updates:
                self.values[rank][name][start:stop] = self.gradients[rank][name][start:stop]

    def _play_SumSquares(self, rank: int, task: SumSquares) -> None:
        """Every element is counted once, when it is summed."""
        self._lane[rank].pop(0)
        part = task.gradients
        total = self.exact_sum(self._reductions[part.name])
        assert self.gradients[rank][part.name][part.start : part.stop] == total[part.start : part.stop]
        self.counted[rank] += [(part.name, index) for index in range(part.start, part.stop)]

    def _play_FindClipFactor(self, rank: int, _task: FindClipFactor) -> None:
        """The factor follows from all elements."""
        self._lane[rank].pop(0)
        every = [(name, index) for name, each in self._reductions.items() for index in range(each.num_elements)]
        assert sorted(self.counted[rank]) == sorted(every)
        on_the_wire = [send.data for send, _ in self._wire.values()]
        assert not any(isinstance(data, Elements) and data.kind == "gradient" for data in on_the_wire)
        self.knows_factor.add(rank)

    def _updates(self, rank: int, reduction: Reduction) -> list[tuple[int, int]]:
        if reduction.route == "server":
            return [(share.start, share.stop) for share in reduction.shares if share.rank == rank]
        return [(0, reduction.num_elements)] if rank in reduction.members else []

    # Messages

    def _play_Send(self, rank: int, task: Send) -> None:
        del self._left[rank][task.id]
        self._wire[rank, task.peer, task.tag] = (task, self._read(rank, task))
        if task.bucket is not None:
            assert isinstance(task.data, Elements)
            self.sent_elements[rank, task.bucket] += task.data.stop - task.data.start

    def _read(self, rank: int, task: Send) -> object:
        data = task.data
        if isinstance(data, ChunkTensor) and task.purpose == "activation":
            assert (data.name, data.chunk) in self._has[rank]
        elif isinstance(data, ChunkTensor):
            consumers = self._tensors[data.name].consumers
            users = [user for user in consumers if self._placement.owners[user][data.chunk] == rank]
            assert {("B", user, data.chunk) for user in users} <= self._has[rank]
        elif data.kind == "statistics":
            assert (data.name, data.chunk) in self._rows[rank]
        elif data.name == "squares":
            return list(self.counted[rank])
        elif data.name == "factor":
            assert rank in self.knows_factor
        elif data.kind == "acknowledgement":
            self._check_taken(rank, task.peer)
        else:
            values = (self.values if data.kind == "value" else self.gradients)[rank][data.name]
            return list(values[data.start : data.stop])
        return None

    def _check_taken(self, rank: int, peer: int) -> None:
        """All that a peer sends has come and been used when it is told so."""
        own = [task for task in self._schedule.ranks[rank].tasks if isinstance(task, (Receive, Forward, Backward))]
        came = {task.id for task in own if isinstance(task, Receive) and task.peer == peer}
        assert came <= self._happened[rank]
        assert all(task.id in self._happened[rank] for task in own if came & set(task.after))

    def _play_Receive(self, rank: int, task: Receive) -> None:
        del self._left[rank][task.id]
        _, data = self._wire.pop((task.peer, rank, task.tag))
        place = task.data
        if isinstance(place, ChunkTensor) and task.purpose == "activation":
            self._has[rank].add((place.name, place.chunk))
        elif isinstance(place, ChunkTensor):
            self._has[rank].add(("activation gradient", place.name, place.chunk, task.peer))
        elif place.kind == "statistics":
            self._rows[rank].add((place.name, place.chunk))
        elif place.name == "squares":
            assert isinstance(data, list)
            self.counted[rank] += data
        elif place.name == "factor":
            self.knows_factor.add(rank)
        elif place.kind != "acknowledgement":
            assert isinstance(data, list)
            if task.onto is not None:
                data = [old + new for old, new in zip(self._held.pop((rank, task.onto)), data, strict=True)]
            if task.combine == "hold":
                self._held[rank, task.id] = data
                return
            buffer = (self.values if place.kind == "value" else self.gradients)[rank][place.name]
            before = buffer[place.start : place.stop]
            added = [(old or 0) + new for old, new in zip(before, data, strict=True)]
            buffer[place.start : place.stop] = data if task.combine == "copy" else added


def lane_of(rank: RankSchedule) -> list[str]:
    """Names of a rank's compute tasks, in their order."""
    return [task.name for task in rank.tasks if not isinstance(task, MessageEnd)]
