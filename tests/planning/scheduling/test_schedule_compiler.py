"""Compiled schedules: two written out as data, and what holds for every one of them."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from grids import chain, grids, model, place
from hypothesis import given, settings
from hypothesis import strategies as st
from referee import Referee, lane_of

from nfold.core.graph import Statistic
from nfold.core.schedule import Schedule
from nfold.errors import InternalError
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.reductions.shares import cut_shares
from nfold.planning.scheduling.schedule_compiler import compile_schedule

pytestmark = pytest.mark.long

CASES = settings(max_examples=25, deadline=None)
MANY_CASES = settings(max_examples=40, deadline=None)


def compiled(graph, placement, reductions, **fields) -> Schedule:
    return compile_schedule(graph, placement, reductions, batch_size=fields.pop("batch_size", 16), **fields)


def messages(schedule: Schedule, kind: str) -> dict:
    return {
        ((rank.rank, task.peer) if kind == "SEND" else (task.peer, rank.rank), task.tag): task
        for rank in schedule.ranks
        for task in rank.tasks
        if task.kind == kind
    }


def test_one_rank_plays_chunk_after_chunk_and_sends_nothing():
    graph = chain(4)
    placement = place({"A": (0, 0), "Loss": (0, 0)}, 1)
    schedule = compiled(graph, placement, buckets_of(graph, placement, "ring", 1 << 20))
    (rank,) = schedule.ranks
    assert lane_of(rank) == ["LOAD 0", "F0.0", "B0.0", "LOAD 1", "F0.1", "B0.1", "UPDATE b0"]
    assert schedule.sent_bytes == 0
    update = rank.tasks[-1]
    assert set(update.after) == {task.id for task in rank.tasks if task.kind == "B"}


def test_two_ranks_in_a_ring_as_data():
    graph = chain(4)
    placement = place({"A": (0, 1), "Loss": (0, 1)}, 2)
    schedule = compiled(graph, placement, buckets_of(graph, placement, "ring", 1 << 20))
    for rank in schedule.ranks:
        me, other = rank.rank, 1 - rank.rank
        assert lane_of(rank) == [f"LOAD {me}", f"F0.{me}", f"B0.{me}", "UPDATE b0"]
        sends = [
            (task.purpose, task.peer, task.data.start, task.data.stop, task.payload_bytes)
            for task in rank.tasks
            if task.kind == "SEND"
        ]
        reduced, gathered = 2 * me, 2 * other
        assert sends == [("reduce", other, reduced, reduced + 2, 8), ("gather", other, gathered, gathered + 2, 8)]
        backward = next(task for task in rank.tasks if task.kind == "B")
        (signal,) = backward.signals
        assert (signal.reduction, signal.fraction) == ("b0", 1.0), "the only bucket is complete with the first layer"
        assert next(task for task in rank.tasks if task.kind == "SEND").after == (signal.event,)


def test_a_pipeline_sends_activations_forth_and_gradients_back():
    graph = chain(4, 4)
    placement = place({"A": (0, 0), "B": (1, 1), "Loss": (1, 1)}, 2)
    schedule = compiled(graph, placement, buckets_of(graph, placement, "ring", 1 << 20))
    first, second = schedule.ranks
    assert lane_of(first) == ["LOAD 0", "F0.0", "LOAD 1", "F0.1", "B0.0", "B0.1", "UPDATE b1"]
    assert lane_of(second) == ["LOAD 0", "F0.0", "B0.0", "LOAD 1", "F0.1", "B0.1", "UPDATE b0"]
    purposes = Counter(task.purpose for rank in schedule.ranks for task in rank.tasks if task.kind == "SEND")
    assert purposes == {"activation": 2, "activation gradient": 2}
    assert schedule.sent_bytes == 2 * 16 * 8, "a batch of 16, 8 bytes a sample, forth and back"


def calling_twice():
    """B and C change state of one module; B waits for A, C for nothing."""
    graph = model({"A": ("input",), "B": ("a",), "C": ("input",), "Loss": ("b", "c", "target")})
    operators = tuple(replace(each, state=("module",)) if each.name in "BC" else each for each in graph.operators)
    return replace(graph, operators=operators)


def test_calls_that_change_state_of_one_module_keep_their_order():
    schedule = compiled(calling_twice(), place({"A": (1,), "B": (0,), "C": (0,), "Loss": (0,)}, 2), ())
    first = schedule.ranks[0]
    assert [first.segments[task.segment].operators[0] for task in first.tasks if task.kind == "F"] == ["B", "C", "Loss"]


def test_calls_that_change_state_of_one_module_are_of_one_rank():
    with pytest.raises(InternalError, match="the operators that update module's state must be placed together"):
        compiled(calling_twice(), place({"A": (1,), "B": (0,), "C": (1,), "Loss": (0,)}, 2), ())


def test_a_pipelines_payloads_follow_the_size_of_each_chunk():
    graph = chain(4, 4)
    placement = place({"A": (0,) * 3, "B": (1,) * 3, "Loss": (1,) * 3}, 2)
    schedule = compiled(graph, placement, buckets_of(graph, placement, "ring", 1 << 20), batch_size=8)
    sizes = {task.data.chunk: task.payload_bytes for task in schedule.ranks[0].tasks if task.kind == "SEND"}
    assert sizes == {0: 3 * 8, 1: 3 * 8, 2: 2 * 8}


def test_a_signal_comes_when_the_first_layer_of_its_bucket_is_done():
    graph = chain(4, 4)
    placement = place({"A": (0, 1), "B": (0, 1), "Loss": (0, 1)}, 2)
    seconds = {"A": (1.0, 3.0), "B": (1.0, 2.0), "Loss": (1.0, 1.0)}
    schedule = compiled(graph, placement, buckets_of(graph, placement, "ring", 16), operator_seconds=seconds)
    backward = next(task for task in schedule.ranks[0].tasks if task.kind == "B")
    assert [(signal.reduction, signal.fraction) for signal in backward.signals] == [("b0", 0.5), ("b1", 1.0)]


@CASES
@given(grids())
def test_each_cell_is_computed_once_by_its_owner(grid):
    graph, placement, reductions = grid
    schedule = compiled(graph, placement, reductions)
    seen: Counter = Counter()
    for rank in schedule.ranks:
        for task in rank.tasks:
            if task.kind in ("F", "B"):
                segment = rank.segments[task.segment]
                seen.update((task.kind, name, task.chunk, rank.rank) for name in segment.operators)
                assert task.kind == "F" or segment.backward
    expected: Counter = Counter()
    for name, owners in placement.owners.items():
        for chunk, owner in enumerate(owners):
            expected["F", name, chunk, owner] = 1
            segments = schedule.ranks[owner].segments
            tasks = [task for task in schedule.ranks[owner].tasks if task.kind == "F" and task.chunk == chunk]
            (own,) = (segments[task.segment] for task in tasks if name in segments[task.segment].operators)
            if own.backward:
                expected["B", name, chunk, owner] = 1
    assert seen == expected


@CASES
@given(grids())
def test_each_message_has_two_equal_ends(grid):
    schedule = compiled(*grid)
    sends, receives = messages(schedule, "SEND"), messages(schedule, "RECV")
    assert sends.keys() == receives.keys()
    assert len(sends) == sum(task.kind == "SEND" for rank in schedule.ranks for task in rank.tasks)
    same = ("purpose", "data", "payload_bytes")
    for key, send in sends.items():
        assert all(getattr(send, name) == getattr(receives[key], name) for name in same)
        assert send.peer != key[0][0], "nobody writes to himself"
    assert sum(send.payload_bytes for send in sends.values()) == schedule.sent_bytes


@CASES
@given(grids())
def test_tasks_wait_for_events_of_their_own_rank(grid):
    for rank in compiled(*grid).ranks:
        ids = [task.id for task in rank.tasks]
        signals = [signal.event for task in rank.tasks if task.kind == "B" for signal in task.signals]
        assert sorted([*ids, *signals]) == list(range(rank.num_events))
        assert all(0 <= event < rank.num_events for task in rank.tasks for event in task.after)


@CASES
@given(grids())
def test_messages_are_no_longer_than_a_piece(grid):
    _, _, reductions = grid
    largest = {each.name: each.piece_elements or each.num_elements for each in reductions}
    sends = [send for send in messages(compiled(*grid), "SEND").values() if send.bucket is not None]
    assert all(0 < send.data.stop - send.data.start <= largest[send.bucket] for send in sends)


@MANY_CASES
@given(grids(), st.integers(0, 1 << 16), st.integers(1, 4))
def test_every_rank_ends_with_the_exact_sums_whatever_the_order(grid, seed, window):
    _, placement, reductions = grid
    windows = (window,) * placement.world_size
    referee = Referee(*grid, compiled(*grid, windows=windows), seed)
    referee.play()
    for reduction in reductions:
        expected = referee.exact_sum(reduction)
        for rank in reduction.members:
            assert referee.values[rank][reduction.name] == expected
        for share in reduction.shares:
            assert (
                referee.values[share.rank][reduction.name][share.start : share.stop]
                == expected[share.start : share.stop]
            )


@CASES
@given(grids())
def test_a_ring_sends_no_element_more_than_it_must(grid):
    referee = Referee(*grid, compiled(*grid), 0)
    referee.play()
    for reduction in grid[2]:
        count = len(reduction.members)
        sent = [referee.sent_elements[rank, reduction.name] for rank in reduction.members]
        if reduction.route == "ring":
            assert sum(sent) == 2 * (count - 1) * reduction.num_elements
        if reduction.route == "ring" and reduction.num_elements % count == 0:
            assert sent == [2 * (count - 1) * reduction.num_elements // count] * count


@pytest.mark.parametrize("weights", [{3: 1.0, 4: 1.0}, {3: 3.0, 4: 1.0}, {0: 1.0, 1: 1.0, 2: 1.0}])
def test_what_goes_to_several_ranks_goes_in_rounds_of_which_two_are_on_their_way(weights):
    graph = chain(120, 120)
    placement = place(dict.fromkeys(("A", "B", "Loss"), (0, 1, 2)), 5)
    buckets = tuple(
        replace(bucket, route="server", shares=cut_shares(bucket, weights, rounds=3), piece_elements=8)
        for bucket in buckets_of(graph, placement, "ring", 480)
    )
    assert len(buckets) == 2
    schedule = compiled(graph, placement, buckets)
    for rank, purpose in product(schedule.ranks, ("push", "pull")):
        sends = [task for task in rank.tasks if task.kind == "SEND" and task.purpose == purpose]
        peers = len({task.peer for task in sends})
        rounds = [sends[index : index + peers] for index in range(0, len(sends), peers or 1)]
        assert all(len({task.peer for task in each}) == peers for each in rounds)
        ends = {task.id for task in sends}
        for number, each in enumerate(rounds):
            before = {task.id for task in rounds[number - 2]} if number > 1 else set()
            assert all(ends & set(task.after) == before for task in each)
    ends = [*messages(schedule, "SEND").values(), *messages(schedule, "RECV").values()]
    assert sum(task.purpose == "push" for task in ends) > 2 * 2 * 3 * 4


@CASES
@given(grids())
def test_equal_questions_get_equal_schedules(grid):
    assert compiled(*grid) == compiled(*grid)


@pytest.mark.parametrize("num_elements", [1, 2, 3, 4, 5, 11])
def test_a_bucket_may_have_fewer_elements_than_ranks(num_elements):
    graph = chain(num_elements)
    placement = place(dict.fromkeys(("A", "Loss"), (0, 1, 2, 3)), 4)
    reductions = buckets_of(graph, placement, "ring", 1 << 20)
    referee = Referee(graph, placement, reductions, compiled(graph, placement, reductions), seed=num_elements)
    referee.play()
    assert [values["b0"] for values in referee.values] == [referee.exact_sum(reductions[0])] * 4


def test_nothing_is_predicted_to_travel_for_an_empty_chunk():
    statistics = (Statistic(module="A", num_channels=2, num_calls=1, dtype="float32"),)
    graph = model({"A": ("input",), "Loss": ("a", "target")}, statistics=statistics)
    placement = place({"A": (0, 1, 0, 1), "Loss": (1, 0, 1, 0)}, 2)
    schedule = compiled(graph, placement, (), batch_size=4)
    empty = [task.payload_bytes for task in messages(schedule, "SEND").values() if task.data.chunk >= 2]
    assert set(empty) == {0}, "two chunks of 2 samples; the other two stay empty and are skipped"
    assert schedule.sent_bytes == 2 * (2 * 8) + 2 * (2 * 2 * 4), "activations, then rows of means and variances"
