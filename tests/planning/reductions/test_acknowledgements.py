"""No rank runs ahead of those that it sends to, and nothing is sent for that where something comes back anyway."""

from dataclasses import replace

import pytest
from grids import chain, grids, model, parameter, place
from hypothesis import given, settings

from nfold.core.graph import Statistic
from nfold.core.schedule import Schedule
from nfold.core.tasks import Backward, MessageEnd, Task
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.reductions.shares import cut_shares
from nfold.planning.scheduling.schedule_compiler import compile_schedule

pytestmark = pytest.mark.long

NORM = Statistic(module="A", num_channels=2, num_calls=1, dtype="float32")


def compiled(graph, placement, route="ring") -> Schedule:
    buckets = buckets_of(graph, placement, route, 1 << 20)
    served = dict.fromkeys(range(placement.world_size), 1.0)
    if route == "server":
        buckets = tuple(replace(each, shares=cut_shares(each, served)) for each in buckets)
    return compile_schedule(graph, placement, buckets, batch_size=16)


def acknowledged(schedule) -> list[tuple[int, int]]:
    """The pairs (who says that it has used all, to whom)."""
    sends = ((rank.rank, task) for rank in schedule.ranks for task in rank.tasks if task.kind == "SEND")
    return sorted((rank, task.peer) for rank, task in sends if task.purpose == "acknowledgement")


def without_acknowledgements(schedule) -> Schedule:
    def kept(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        return tuple(task for task in tasks if not (isinstance(task, MessageEnd) and task.purpose == "acknowledgement"))

    return replace(schedule, ranks=tuple(replace(rank, tasks=kept(rank.tasks)) for rank in schedule.ranks))


def is_in(message: MessageEnd, num_chunks: int) -> bool:
    """Whether it goes in a batch of so many chunks."""
    return message.data.chunk is None or message.data.chunk < num_chunks


def ended_without(schedule, held: int, num_chunks: int) -> set[int]:
    """Play a batch of so many chunks with a rank that never begins; return who ends the step all the same."""
    lanes = {rank.rank: [task for task in rank.tasks if not isinstance(task, MessageEnd)] for rank in schedule.ranks}
    others = {rank.rank: [task for task in rank.tasks if isinstance(task, MessageEnd)] for rank in schedule.ranks}
    happened: dict[int, set[int]] = {rank.rank: set() for rank in schedule.ranks}
    wire: set[int] = set()
    moved = True
    while moved:
        moved = False
        for rank in happened.keys() - {held}:
            for task in [*lanes[rank][:1], *others[rank]]:
                is_there = task.kind != "RECV" or not is_in(task, num_chunks) or task.tag in wire
                if is_there and happened[rank].issuperset(task.after):
                    (others if task in others[rank] else lanes)[rank].remove(task)
                    signals = task.signals if isinstance(task, Backward) else ()
                    happened[rank] |= {task.id, *(signal.event for signal in signals)}
                    wire |= {task.tag} if task.kind == "SEND" and is_in(task, num_chunks) else set()
                    moved = True
    return {rank for rank in happened if not lanes[rank] and not others[rank]}


def runs_ahead(schedule, sender: int, receiver: int, num_chunks: int) -> bool:
    sends = (task for task in schedule.ranks[sender].tasks if task.kind == "SEND" and task.peer == receiver)
    is_neighbour = any(is_in(task, num_chunks) for task in sends)
    return is_neighbour and sender in ended_without(schedule, receiver, num_chunks)


@settings(max_examples=60, deadline=None)
@given(grids())
def test_who_sends_something_ends_its_step_after_the_receiver_has_begun_it_however_short_the_batch(grid):
    schedule = compile_schedule(*grid, batch_size=16)
    ranks = range(len(schedule.ranks))
    for num_chunks in range(1, schedule.num_chunks + 1):
        ahead = [(one, other) for one in ranks for other in ranks if runs_ahead(schedule, one, other, num_chunks)]
        assert ahead == []
    bare = without_acknowledgements(schedule)
    for receiver, sender in acknowledged(schedule):
        needed = [runs_ahead(bare, sender, receiver, count) for count in range(1, schedule.num_chunks + 1)]
        assert any(needed), f"rank {sender} hears of {receiver} anyway"


@pytest.mark.parametrize("route", ["ring", "server"])
@pytest.mark.parametrize("owners", [(0, 1, 2, 3), (3, 2, 1, 0), (0, 0, 1, 2)])
def test_replicas_send_nothing_for_it(owners, route):
    graph = model({"A": ("input",), "Loss": ("a", "target")}, (parameter("w", 1, "A"),), statistics=(NORM,))
    assert acknowledged(compiled(graph, place(dict.fromkeys(("A", "Loss"), owners), 4), route)) == []


def test_a_pipeline_with_gradients_sends_nothing_for_it():
    graph = chain(4, 4, 4)
    placement = place({"A": (0,) * 4, "B": (1,) * 4, "C": (2,) * 4, "Loss": (3,) * 4}, 4)
    assert acknowledged(compiled(graph, placement)) == []


def frozen_front() -> Schedule:
    weights = tuple(parameter(f"{name}.weight", 4, name, trainable=name == "C") for name in "ABC")
    graph = model({"A": ("input",), "B": ("a",), "C": ("b",), "Loss": ("c", "target")}, weights)
    return compiled(graph, place({"A": (0,) * 3, "B": (1,) * 3, "C": (2,) * 3, "Loss": (3,) * 3}, 4))


def test_each_rank_of_a_frozen_front_hears_when_the_next_has_used_its_tensors():
    schedule = frozen_front()
    assert acknowledged(schedule) == [(1, 0), (2, 1)], "from the head gradients come back"
    for rank in schedule.ranks[1:3]:
        (told,) = (task for task in rank.tasks if task.kind == "SEND" and task.purpose == "acknowledgement")
        used = {task.id for task in rank.tasks if task.kind == "F"}
        came = {task.id for task in rank.tasks if task.kind == "RECV" and task.peer == rank.rank - 1}
        assert set(told.after) == used | came


def test_a_front_that_hears_of_the_head_another_way_is_told_nothing():
    """Rank 0 sends the head what has no gradient; that of its other tensor comes from the head over rank 1."""
    weights = (parameter("b.weight", 4, "B"), parameter("d.weight", 4, "D"))
    inputs = {"A": ("input",), "B": ("input",), "C": ("b",), "D": ("a", "c"), "Loss": ("d", "target")}
    owners = {"A": 0, "B": 0, "C": 1, "D": 2, "Loss": 2}
    placement = place({name: (rank,) * 2 for name, rank in owners.items()}, 3)
    assert acknowledged(compiled(model(inputs, weights), placement)) == []


def test_an_acknowledgement_has_no_bytes():
    sends = [task for rank in frozen_front().ranks for task in rank.tasks if task.kind == "SEND"]
    assert {task.payload_bytes for task in sends if task.purpose == "acknowledgement"} == {0}
