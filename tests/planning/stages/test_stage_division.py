"""Divisions into stages: never worse than the best of all, and bytes that are the schedule's."""

import itertools
import random
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from grids import chain, channel, facts, graphs, model, profile
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nfold.core.cluster import Cluster, Node
from nfold.core.graph import Statistic
from nfold.core.placement import Placement
from nfold.planning.costs.machines import machines_of
from nfold.planning.costs.operator_runs import add_up, interval_sums, join_runs
from nfold.planning.reductions.reductions_without_servers import reductions_of
from nfold.planning.scheduling.schedule_compiler import compile_schedule
from nfold.planning.stages.stage_costs import Grid, StageCosts
from nfold.planning.stages.stage_division import Stage, divide, least_bottleneck_s


def every_division(num_runs: int, num_machines: int, sizes: Collection[int]) -> list[tuple[Stage, ...]]:
    """All ways to cut runs and machines into the same number of stages, by brute force."""
    found = []
    for count in range(1, min(num_runs, num_machines) + 1):
        for cuts in itertools.combinations(range(1, num_runs), count - 1):
            for borders in itertools.combinations(range(1, num_machines), count - 1):
                runs, ranks = (0, *cuts, num_runs), (0, *borders, num_machines)
                stages = tuple(map(Stage, runs[:-1], runs[1:], ranks[:-1], ranks[1:]))
                if all(stage.last - stage.first in sizes for stage in stages):
                    found.append(stages)
    return found


class Drawn:
    """Random costs of every stage, some of them impossible."""

    def __init__(self, seed: int, num_runs: int) -> None:
        self._random, self._num_runs = random.Random(seed), num_runs
        self._arrays: dict[tuple[int, int], np.ndarray] = {}

    def __call__(self, first: int, last: int) -> np.ndarray:
        if (first, last) not in self._arrays:
            values = [self._random.choice([1, 2, 3, 5, 8, np.inf]) for _ in range((self._num_runs + 1) ** 2)]
            square = np.array(values).reshape(self._num_runs + 1, -1)
            self._arrays[first, last] = np.where(np.triu(np.ones_like(square), 1) > 0, square, np.inf)
        return self._arrays[first, last]

    def of(self, stage: Stage) -> float:
        return float(self(stage.first, stage.last)[stage.start, stage.stop])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sets(st.integers(1, 4), min_size=1),
    st.sampled_from([1.0, 1.5]),
)
def test_no_division_is_better_than_the_one_found(seed, num_runs, num_machines, sizes, slack):
    seconds, sent = Drawn(seed, num_runs), Drawn(seed + 1, num_runs)
    size = (num_runs, num_machines, tuple(sizes))
    every = every_division(*size)
    bottlenecks = [max(seconds.of(stage) for stage in stages) for stages in every]
    least = min(bottlenecks, default=np.inf)
    assert least_bottleneck_s(seconds, *size) == least
    if not np.isfinite(least):
        return
    limit_s = slack * least
    totals = [
        sum(sent.of(stage) for stage in stages)
        for stages, bottleneck in zip(every, bottlenecks, strict=True)
        if bottleneck <= limit_s
    ]
    found = divide(seconds, sent, limit_s, *size)
    if not np.isfinite(min(totals)):
        assert found == ()
        return
    assert found in every
    assert max(seconds.of(stage) for stage in found) <= limit_s
    assert sum(sent.of(stage) for stage in found) == min(totals)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_bytes_of_stages_are_those_of_the_schedule(data):
    graph = replace(data.draw(graphs()), clips_gradients=False)  # the few bytes of a norm are the same for every layout
    workers = data.draw(st.integers(1, 4))
    question = facts(graph, workers, batch_size=data.draw(st.sampled_from([7, 16])))
    num_chunks = data.draw(st.integers(workers, 6))
    seconds = {operator.name: data.draw(st.sampled_from([0.0, 1.0])) for operator in graph.operators}
    runs = join_runs(graph, seconds, most=data.draw(st.integers(1, 6)))
    grid, machines = Grid(question, runs, num_chunks), machines_of(question)
    costs = StageCosts(grid, machines, limited=False)
    stages = data.draw(st.sampled_from(every_division(len(runs), workers, range(1, workers + 1))))
    assume(all(min(grid.shares(machines[stage.first : stage.last])) > 0 for stage in stages))
    owners = grid.owners(machines, stages)
    placement = Placement(num_chunks=num_chunks, world_size=workers, owners=owners)
    schedule = compile_schedule(graph, placement, reductions_of(question, placement), batch_size=question.batch_size)
    assert schedule.sent_bytes == sum(costs.bytes(each.first, each.last)[each.start, each.stop] for each in stages)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_runs_hold_every_operator_once_in_order_and_are_not_too_many(data):
    graph = data.draw(graphs())
    seconds = {operator.name: data.draw(st.sampled_from([0.0, 0.5, 1.0, 4.0])) for operator in graph.operators}
    most = data.draw(st.integers(1, 6))
    runs = join_runs(graph, seconds, most)
    assert [name for run in runs for name in run] == [operator.name for operator in graph.operators]
    assert all(runs)
    assert len(runs) <= most


def test_a_weightless_operator_rides_to_where_the_fewest_bytes_cross():
    graph = model(
        {"Conv": ("input",), "Pool": ("conv",), "Repeat": ("pool",), "Line": ("repeat",), "Loss": ("line", "target")}
    )
    widths = {"conv": 80.0, "pool": 20.0, "repeat": 60.0}
    tensors = tuple(replace(each, bytes_per_sample=widths.get(each.name, 8.0)) for each in graph.tensors)
    seconds = {"Conv": 1.0, "Pool": 0.0, "Repeat": 0.0, "Line": 1.0, "Loss": 0.0}
    assert join_runs(replace(graph, tensors=tensors), seconds, 9) == (("Conv", "Pool"), ("Repeat", "Line", "Loss"))


@pytest.mark.parametrize("kept", [{"statistics": ("A",)}, {"state": ("A",)}])
def test_operators_that_update_the_same_statistics_or_state_stay_together(kept):
    graph = model(
        {"A": ("input",), "B": ("a",), "C": ("b",), "Loss": ("c", "target")},
        (),
        (Statistic(module="A", num_channels=1, num_calls=2, dtype="float32"),),
    )
    twice = tuple(replace(each, **kept) if each.name in "AC" else each for each in graph.operators)
    runs = join_runs(replace(graph, operators=twice), dict.fromkeys(("A", "B", "C", "Loss"), 1.0), 9)
    assert runs == (("A", "B", "C"), ("Loss",))


def test_many_equal_operators_are_joined_into_runs_of_about_the_same_time():
    graph = chain(*[1] * 20)
    runs = join_runs(graph, {operator.name: 1.0 for operator in graph.operators}, 7)
    assert {len(run) for run in runs} == {3}


def test_sums_of_intervals():
    assert interval_sums([1, 2, 4])[1, 3] == 6
    assert interval_sums([1, 2, 4])[2, 1] == 0


def test_a_stage_that_does_not_fit_the_memory_cannot_be():
    graph = chain(1000, 1000)
    node = Node(name="box", cores=2.0, memory_bytes=2 * 10_000, local=channel())
    question = facts(graph, 2, cluster=Cluster(nodes=(node,)), profiles={1: profile(graph, base_bytes=500)})
    grid = Grid(question, (("A",), ("B", "Loss")), 2)
    limited, free = (StageCosts(grid, machines_of(question), limited=limited) for limited in (True, False))
    assert np.isfinite(limited.seconds(0, 1)[0, 1])
    assert not np.isfinite(limited.seconds(0, 1)[0, 2]), "two parameters of 4 kB, twice each, and the process"
    assert np.isfinite(free.seconds(0, 1)[0, 2])


def test_a_stage_takes_as_long_as_its_chunks_and_its_ring():
    graph = chain(1000, 1000, 1000)
    question = facts(graph, 4, batch_size=16, chunks=8)
    costs = StageCosts(Grid(question, (("A",), ("B",), ("C", "Loss")), 8), machines_of(question), limited=True)
    chunk_s = 3 * 2e-3 / 4
    assert costs.seconds(0, 1)[0, 1] == pytest.approx(8 * chunk_s)
    ring_s = 2 * 1 / 2 * 4000 / 1e8 + 2 * 1e-4
    assert costs.seconds(0, 2)[0, 1] == pytest.approx(4 * chunk_s + ring_s)
    assert costs.bytes(0, 2)[1, 2] == 2 * 16 * 8 + 2 * 4000
    assert add_up(graph, (("A",), ("B",), ("C", "Loss")), 16, 8).arriving_bytes[1, 2] == 16 * 8
