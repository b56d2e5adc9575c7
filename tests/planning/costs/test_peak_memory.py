"""Bytes of each rank at its peak, by hand."""

from dataclasses import replace

import pytest
from grids import facts, grids, model, parameter, place, profile
from hypothesis import given, settings
from towers import towers

from nfold.core.chunks import chunk_sizes
from nfold.core.graph import Statistic
from nfold.planning.asynchronous.asynchronous_strategies import AsynchronousParameterServer
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import named
from nfold.planning.costs.peak_memory import (
    foreign_parameters,
    held_bytes,
    kept_bytes,
    peak_memory_bytes,
    snapshot_bytes,
    working_bytes,
)
from nfold.planning.operator_parts.splitting import split_graph
from nfold.planning.reductions.reductions_without_servers import placed
from nfold.planning.scheduling.schedule_compiler import compile_schedule

pytestmark = pytest.mark.long

WEIGHTS = (
    parameter("a.weight", 1000, "A"),
    parameter("tied.weight", 2000, "A", "C"),
    parameter("c.weight", 4000, "C"),
    parameter("unused.weight", 8000, trainable=False),
)
GRAPH = model({"A": ("input",), "B": ("a",), "C": ("b",), "D": ("c", "target")}, WEIGHTS)


def stages(num_chunks, world_size=4):
    owners = dict(zip("ABCD", range(4), strict=True))
    return {name: (min(rank, world_size - 1),) * num_chunks for name, rank in owners.items()}


def test_a_rank_keeps_the_weights_of_its_operators_and_those_that_nobody_uses():
    placement = place(stages(2), 4)
    assert foreign_parameters(GRAPH, placement) == (
        frozenset({"c.weight"}),
        frozenset({"a.weight", "tied.weight", "c.weight"}),
        frozenset({"a.weight"}),
        frozenset({"a.weight", "tied.weight", "c.weight"}),
    )
    assert foreign_parameters(GRAPH, place(dict.fromkeys("ABCD", (0, 1)), 2)) == (frozenset(),) * 2


def test_of_a_weight_in_parts_a_rank_keeps_its_own_rows():
    graph = split_graph(towers(), {"F": 2})
    asked = facts(graph, 3)
    last = {"F[0/2]": 1, "F[1/2]": 2}
    proposal = placed(asked, {each.name: (last.get(each.name, 0),) for each in graph.operators})
    rows = {each.name: each for each in graph.parameters if each.rows}
    foreign = foreign_parameters(graph, proposal.placement)
    assert rows
    assert foreign[0] >= rows.keys()
    for rank in range(3):
        own = [each for each in graph.parameters if each.name not in foreign[rank]]
        weights = sum(each.num_bytes for each in own)
        gradients = sum(each.num_bytes for each in own if each.has_gradient)
        state = asked.profiles[1].optimizer_bytes * gradients / graph.parameter_bytes
        held = held_bytes(graph, proposal, asked.profiles[1], rank)
        assert held == pytest.approx(weights + gradients + state, rel=0.01)


@pytest.mark.parametrize(("window", "chunks_kept"), [(1, 1), (3, 3), (8, 8)])
def test_the_first_stage_keeps_as_many_chunks_as_its_window(window, chunks_kept):
    asked = facts(GRAPH, 4, batch_size=32)
    proposal = placed(asked, stages(8))
    windows = (window, 8, 8, 8)
    seconds = dict.fromkeys("ABCD", (1.0, 1.0)) | {"D": (20.0, 20.0)}
    schedule = compile_schedule(
        GRAPH, proposal.placement, proposal.reductions, batch_size=32, operator_seconds=seconds, windows=windows
    )
    kept = [kept_bytes(rank, dict.fromkeys("ABCD", 10.0), chunk_sizes(32, 8)) for rank in schedule.ranks]
    assert kept[0] == chunks_kept * 4 * 10.0
    assert kept[3] == 4 * 10.0


def test_a_stage_needs_its_weights_its_chunks_its_messages_and_its_data():
    costly = profile(GRAPH, base_bytes=10**6, activation_bytes_per_sample=400.0, optimizer_bytes=2 * 4 * 7000)
    asked = facts(GRAPH, 2, batch_size=32, profiles={1: costly})
    proposal = placed(asked, stages(4, world_size=2))
    schedule = compile_schedule(GRAPH, proposal.placement, proposal.reductions, batch_size=32)
    first, second = peak_memory_bytes(asked, proposal, costly, working_bytes(schedule, costly, chunk_sizes(32, 4)))
    unused, tied = 4 * 8000, 4 * 2000
    # Weights, gradients and two moments; of the tied weight half of the gradient is received to be added.
    own = 4 * 3000
    # A's backward takes the gradient of its result and makes that of the tied weight; C's makes c.weight's.
    passing = (8 * 8 + tied, 8 * (8 + 8) + 4 * 4000)
    assert first == 10**6 + unused + own + 3 * own + tied // 2 + 3 * 8 * 100 + 32 * 8 + 2 * 32 * 8 + passing[0]
    assert second == 10**6 + unused + 4 * (4 * 6000) + tied // 2 + 8 * 300 + 32 * 8 + 2 * 32 * 8 + passing[1]


def test_averages_take_as_much_as_the_weights_that_a_rank_keeps():
    plain = profile(GRAPH, base_bytes=10**6)
    averaged = replace(GRAPH, averages_weights=True)
    proposal = placed(facts(GRAPH, 2, batch_size=32, profiles={1: plain}), stages(4, world_size=2))
    more = [held_bytes(averaged, proposal, plain, rank) - held_bytes(GRAPH, proposal, plain, rank) for rank in (0, 1)]
    assert more == [4 * (1000 + 2000 + 8000), 4 * (2000 + 4000 + 8000)]


def test_three_snapshots_hold_what_a_rank_trains_and_what_another_one_has_alone():
    plain = profile(GRAPH, base_bytes=10**6, optimizer_bytes=2 * 4 * 7000)
    proposal = placed(facts(GRAPH, 2, batch_size=32, profiles={1: plain}), stages(4, world_size=2))
    weights_and_moments = 4 * 3
    own, alone = (1000 + 2000, 2000 + 4000), (1000, 4000)
    expected = [3 * weights_and_moments * (own[rank] + alone[1 - rank]) for rank in (0, 1)]
    assert [snapshot_bytes(GRAPH, proposal, plain, rank) for rank in (0, 1)] == expected
    working = (0, 0)
    needed = [
        peak_memory_bytes(facts(GRAPH, 2, keeps_snapshots=keeps), proposal, plain, working) for keeps in (True, False)
    ]
    assert [more - less for more, less in zip(*needed, strict=True)] == expected


def test_snapshots_of_an_asynchronous_rank_hold_what_it_serves_and_what_another_one_serves():
    plain = profile(GRAPH, base_bytes=10**6, optimizer_bytes=2 * 4 * 7000)
    (proposal,) = AsynchronousParameterServer().propose(facts(GRAPH, 2, batch_size=32, profiles={1: plain}))
    assert sum(snapshot_bytes(GRAPH, proposal, plain, rank) for rank in (0, 1)) == 3 * 2 * 4 * 3 * 7000


def test_an_empty_chunk_keeps_nothing():
    asked = facts(GRAPH, 4, batch_size=4, profiles={1: profile(GRAPH, activation_bytes_per_sample=1e6)})
    proposal = placed(asked, dict.fromkeys("ABCD", (0, 1, 2, 3)))
    schedule = compile_schedule(GRAPH, proposal.placement, proposal.reductions, batch_size=4)
    working = working_bytes(schedule, asked.profiles[1], chunk_sizes(4, 4))
    peaks = peak_memory_bytes(asked, proposal, asked.profiles[1], working)
    assert peaks[0] - peaks[2] == pytest.approx(2e6, rel=0.01)


@settings(max_examples=25, deadline=None)
@given(grids())
def test_all_ranks_together_keep_what_the_batch_has_for_its_backward_if_nothing_is_freed(grid):
    graph, placement, reductions = grid
    schedule = compile_schedule(graph, placement, reductions, batch_size=16)
    saved = {operator.name: 1.0 + index for index, operator in enumerate(graph.operators)}
    sizes = chunk_sizes(16, placement.num_chunks)
    kept = expected = 0.0
    for rank in schedule.ranks:
        forwards = tuple(task for task in rank.tasks if task.kind == "F")
        kept += kept_bytes(replace(rank, tasks=forwards), saved, sizes)
        for task in forwards:
            segment = rank.segments[task.segment]
            expected += sizes[task.chunk] * sum(saved[name] for name in segment.operators if segment.backward)
    assert kept == expected


def test_rank_0_has_room_for_the_whole_model_where_it_evaluates_it():
    costly = profile(GRAPH, base_bytes=10**6, optimizer_bytes=2 * 4 * 7000)
    asked = facts(GRAPH, 2, batch_size=32, profiles={1: costly})
    proposal = placed(asked, stages(4, world_size=2))
    before = peak_memory_bytes(asked, proposal, costly, (0, 0))
    after = peak_memory_bytes(replace(asked, evaluates=True), proposal, costly, (0, 0))
    whole = sum(each.num_bytes for each in GRAPH.parameters)
    assert after == (10**6 + held_bytes(GRAPH, proposal, costly, 0) + whole, before[1])
    together = placed(asked, dict.fromkeys("ABCD", (0, 1)))
    assert peak_memory_bytes(replace(asked, evaluates=True), together, costly, (0, 0)) == peak_memory_bytes(
        asked, together, costly, (0, 0)
    ), "each worker holds all of it"


@pytest.mark.parametrize("strategy", ["ps-async", "ssp"])
def test_rank_0_fetches_the_batch_statistics_of_asynchronous_workers_with_the_model(strategy):
    weights = tuple(parameter(f"{name}.weight", 2 * 10**6, name) for name in "ABC")
    graph = model({"A": ("input",), "B": ("a",), "C": ("b", "target")}, weights)

    def peaks(graph, *, evaluates):
        return plan(facts(graph, 2, evaluates=evaluates), strategy).predicted.peak_memory_bytes

    assert peaks(graph, evaluates=True) == peaks(graph, evaluates=False), "each worker holds all of it"
    normed = replace(
        graph,
        operators=tuple(replace(each, statistics=("B",) if each.name == "B" else ()) for each in graph.operators),
        statistics=(Statistic(module="B", num_channels=2, num_calls=1, dtype="float32"),),
    )
    asked = facts(normed, 2)
    (proposal,) = named(strategy).propose(asked)
    whole = 3 * 4 * 2 * 10**6
    held = held_bytes(normed, proposal, asked.profiles[1], 0)
    assert peaks(normed, evaluates=True) == (held + whole, peaks(normed, evaluates=False)[1])


def test_only_the_rank_that_measured_holds_the_tracer():
    asked = facts(GRAPH, 2, batch_size=32)
    proposal = placed(asked, dict.fromkeys("ABCD", (0, 1)))
    schedule = compile_schedule(GRAPH, proposal.placement, proposal.reductions, batch_size=32)
    plain = profile(GRAPH, base_bytes=10**6)
    traced = profile(GRAPH, base_bytes=10**6, tracer_bytes=500, profiler=1)
    without, measured = (
        peak_memory_bytes(asked, proposal, each, working_bytes(schedule, each, chunk_sizes(32, 2)))
        for each in (plain, traced)
    )
    assert measured == (without[0], without[1] + 500)
