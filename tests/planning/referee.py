"""Plays a schedule on whole numbers, in any order that core/schedule.py allows, and checks each task as it comes.

The numbers are exact, so a sum is right or wrong; the order is drawn from a seeded generator, so a schedule that only
works when messages are quick is found out.
"""

import random
from collections import defaultdict

from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement, Reduction
from nfold.core.schedule import RankSchedule, Schedule, Task

LANE = ("LOAD", "F", "B", "UPDATE")
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
        self._lane = [[task for task in rank.tasks if task.kind in LANE] for rank in schedule.ranks]
        self._left = [{task.id: task for task in rank.tasks if task.kind not in LANE} for rank in schedule.ranks]
        self._wire: dict[tuple[int, int, int], tuple[Task, object]] = {}
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
            getattr(self, f"_play_{task.kind}")(rank, task)
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

    def _play_LOAD(self, rank: int, task: Task) -> None:
        self._lane[rank].pop(0)
        self._has[rank].add(("batch", task.chunk))

    def _play_F(self, rank: int, task: Task) -> None:
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

    def _play_B(self, rank: int, task: Task) -> None:
        self._lane[rank].pop(0)
        segment = self._schedule.ranks[rank].segments[task.segment]
        assert {("F", name, task.chunk) for name in segment.operators} <= self._has[rank]
        for name in segment.outputs:
            tensor = self._tensors[name]
            for user in tensor.consumers if tensor.requires_grad else ():
                owner = self._placement.owners[user][task.chunk]
                wanted = ("B", user, task.chunk) if owner == rank else ("gradient", name, task.chunk, owner)
                assert user in segment.operators or wanted in self._has[rank], f"{task.name} on {rank} lacks {wanted}"
        signalled = {signal.reduction for signal in task.signals}
        for signal in task.signals:
            self._accumulate(rank, task, self._reductions[signal.reduction], segment.operators)
            self._happened[rank].add(signal.event)
        for reduction in self._reductions.values():
            if reduction.name not in signalled and rank in reduction.members:
                self._accumulate(rank, task, reduction, segment.operators)
        self._has[rank] |= {("B", name, task.chunk) for name in segment.operators}

    def _accumulate(self, rank: int, task: Task, reduction: Reduction, operators: tuple[str, ...]) -> None:
        parameters = {parameter.name: parameter for parameter in self._graph.parameters}
        gradient, offset = self.gradients[rank][reduction.name], 0
        for name in reduction.parameters:
            each = parameters[name]
            for user in set(each.users) & set(operators):
                for index, number in enumerate(contribution(user, task.chunk, name, each.num_elements)):
                    gradient[offset + index] += number
            offset += each.num_elements

    def _play_UPDATE(self, rank: int, task: Task) -> None:
        self._lane[rank].pop(0)
        if task.purpose == "norm":
            self._play_norm(rank, task)
            return
        if task.reduction in self._groups:
            rows = {(task.reduction, chunk) for chunk in range(self._schedule.num_chunks)}
            assert rows <= self._rows[rank], f"{task.name} on {rank} lacks rows"
            return
        assert rank in self.knows_factor or not self._graph.clips_gradients
        for name, reduction in self._reductions.items():
            if task.reduction not in (name, "*"):
                continue
            updates = self._updates(rank, reduction)
            if task.reduction == name:
                assert (task.start, task.stop) in updates
                updates = [(task.start, task.stop)]
            for start, stop in updates:
                self.values[rank][name][start:stop] = self.gradients[rank][name][start:stop]

    def _play_norm(self, rank: int, task: Task) -> None:
        """Every element is counted once, when it is summed; the factor follows from all of them."""
        if task.buffer == "squares":
            total = self.exact_sum(self._reductions[task.reduction])
            assert self.gradients[rank][task.reduction][task.start : task.stop] == total[task.start : task.stop]
            self.counted[rank] += [(task.reduction, index) for index in range(task.start, task.stop)]
            return
        every = [(name, index) for name, each in self._reductions.items() for index in range(each.num_elements)]
        assert sorted(self.counted[rank]) == sorted(every)
        on_the_wire = [send.buffer for send, _ in self._wire.values()]
        assert not any(buffer.startswith("gradient/") for buffer in on_the_wire), "no gradient travels any more"
        self.knows_factor.add(rank)

    def _updates(self, rank: int, reduction: Reduction) -> list[tuple[int, int]]:
        if reduction.route == "server":
            return [(share.start, share.stop) for share in reduction.shares if share.rank == rank]
        return [(0, reduction.num_elements)] if rank in reduction.members else []

    # Messages

    def _play_SEND(self, rank: int, task: Task) -> None:
        del self._left[rank][task.id]
        self._wire[rank, task.peer, task.tag] = (task, self._read(rank, task))
        self.sent_elements[rank, task.reduction] += task.stop - task.start

    def _read(self, rank: int, task: Task) -> object:
        kind, _, name = task.buffer.partition("/")
        if kind == "activation":
            assert (name, task.chunk) in self._has[rank]
            return None
        if kind == "activation-gradient":
            users = [user for user in self._tensors[name].consumers if self._placement.owners[user][task.chunk] == rank]
            assert {("B", user, task.chunk) for user in users} <= self._has[rank]
            return None
        if kind == "statistics":
            assert (task.buffer, task.chunk) in self._rows[rank]
            return None
        if kind == "squares":
            return list(self.counted[rank])
        if kind == "factor":
            assert rank in self.knows_factor
            return None
        if kind == "taken":
            self._check_taken(rank, task.peer)
            return None
        return list((self.values if kind == "value" else self.gradients)[rank][name][task.start : task.stop])

    def _check_taken(self, rank: int, peer: int) -> None:
        """All that a peer sends has come and been used when it is told so."""
        own = [task for task in self._schedule.ranks[rank].tasks if task.kind in ("RECV", "F", "B")]
        came = {task.id for task in own if (task.kind, task.peer) == ("RECV", peer)}
        assert came <= self._happened[rank]
        assert all(task.id in self._happened[rank] for task in own if came & set(task.after))

    def _play_RECV(self, rank: int, task: Task) -> None:
        del self._left[rank][task.id]
        _, data = self._wire.pop((task.peer, rank, task.tag))
        kind, _, name = task.buffer.partition("/")
        if kind == "activation":
            self._has[rank].add((name, task.chunk))
        elif kind == "activation-gradient":
            self._has[rank].add(("gradient", name, task.chunk, task.peer))
        elif kind == "statistics":
            self._rows[rank].add((task.buffer, task.chunk))
        elif kind == "squares":
            assert isinstance(data, list)
            self.counted[rank] += data
        elif kind == "factor":
            self.knows_factor.add(rank)
        elif kind != "taken":
            assert isinstance(data, list)
            if task.onto >= 0:
                data = [old + new for old, new in zip(self._held.pop((rank, task.onto)), data, strict=True)]
            if task.combine == "hold":
                self._held[rank, task.id] = data
                return
            buffer = (self.values if kind == "value" else self.gradients)[rank][name]
            before = buffer[task.start : task.stop]
            added = [(old or 0) + new for old, new in zip(before, data, strict=True)]
            buffer[task.start : task.stop] = data if task.combine == "copy" else added


def lane_of(rank: RankSchedule) -> list[str]:
    """Names of a rank's compute tasks, in their order."""
    return [task.name for task in rank.tasks if task.kind in LANE]
