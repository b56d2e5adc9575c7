"""Cells may lie anywhere: random placements give one device's parameters too."""

from dataclasses import replace
from functools import cache

import pytest
from harness import difference, graph_of, placed_plan, plain_loop, play, random_owners, with_more
from nets import NETS, program

from nfold.core.placement import Placement
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.scheduling.schedule_compiler import compile_schedule

STEPS, CHUNKS = 4, 4


@pytest.fixture(scope="module")
def graphs():
    return cache(lambda net: graph_of(program(net)))


@pytest.fixture(scope="module")
def expected(graphs):
    """What one device ends with: a rank of ours where random numbers are drawn, a plain loop elsewhere."""

    def train(net):
        mine, graph = program(net), graphs(net)
        if net != "dropping":
            return plain_loop(mine, STEPS, CHUNKS).state_dict()
        owners = {op.name: (0,) * CHUNKS for op in graph.operators}
        placement = Placement(num_chunks=CHUNKS, world_size=1, owners=owners)
        plan = placed_plan(mine, owners, 1, buckets_of(graph, placement, "local", 1 << 40))
        return play(mine, graph, plan, STEPS).state

    return cache(train)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize(("world", "seed"), with_more(((3, 1), (4, 3)), [(2, 0), (3, 1), (4, 3)]))
def test_random_placements_equal_one_device(graphs, expected, net, world, seed):
    mine, graph = program(net), graphs(net)
    owners = random_owners(graph, CHUNKS, world, seed)
    placement = Placement(num_chunks=CHUNKS, world_size=world, owners=owners)
    plan = placed_plan(mine, owners, world, buckets_of(graph, placement, "ring", 4096))
    played = play(mine, graph, plan, STEPS)
    assert difference(played.state, expected(net)) <= 1e-9


def test_a_plan_that_begins_fewer_chunks_equals_one_device_too(graphs, expected):
    """Three stages in a row, of which the first would have begun all four chunks before its first backward."""
    mine, graph = program("plain"), graphs("plain")
    count = len(graph.operators)
    owners = {op.name: (3 * index // count,) * CHUNKS for index, op in enumerate(graph.operators)}
    placement = Placement(num_chunks=CHUNKS, world_size=3, owners=owners)
    plan = placed_plan(mine, owners, 3, buckets_of(graph, placement, "ring", 4096))
    narrow = replace(plan, windows=(1, 1, 1))
    orders = [[task.name for task in a_schedule(graph, each).ranks[0].tasks] for each in (plan, narrow)]
    assert orders[0] != orders[1]
    assert difference(play(mine, graph, narrow, STEPS).state, expected("plain")) <= 1e-9


def a_schedule(graph, plan):
    return compile_schedule(
        graph, plan.placement, plan.reductions, batch_size=plan.batch_size, windows=plan.windows, paces=plan.paces
    )
