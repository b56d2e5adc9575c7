"""Nets in every style, cut anywhere, learn what one device learns; the benchmark `transparency` plays the rest."""

import sys
from functools import cache
from pathlib import Path

import pytest
from harness import difference, graph_of, placed_plan, plain_loop, play, random_owners, with_more

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from programs.zoo import ZOO

from nfold.core.placement import Placement
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.scheduling.schedule_compiler import compile_schedule

STEPS, RANKS, CHUNKS = 3, 3, 4
PLAYED = (
    *("dense", "mobile", "shuffle", "two-towers", "unet", "stochastic", "vit", "gpt", "lstm", "gru", "variational"),
    *("repeated", "wide-deep", "weight-norm", "experts", "integers"),
)
"""The styles that no test beside this has."""
ALWAYS = ("two-towers", "unet", "stochastic", "gpt", "lstm", "experts", "integers")


@pytest.fixture(scope="module")
def graphs():
    return cache(lambda name: graph_of(ZOO[name].program()))


@pytest.mark.parametrize("name", with_more(ALWAYS, [name for name in PLAYED if not ZOO[name].draws]))
def test_a_random_placement_equals_a_plain_loop_and_sends_what_was_predicted(graphs, name):
    program = ZOO[name].program()
    graph = graphs(name)
    owners = random_owners(graph, CHUNKS, RANKS, seed=len(name))
    placement = Placement(num_chunks=CHUNKS, world_size=RANKS, owners=owners)
    plan = placed_plan(program, owners, RANKS, buckets_of(graph, placement, "ring", 4096))
    played = play(program, graph, plan, STEPS)
    assert difference(played.state, plain_loop(program, STEPS, CHUNKS).state_dict()) <= ZOO[name].tolerance
    schedule = compile_schedule(graph, placement, plan.reductions, batch_size=program.batch_size)
    assert sum(played.sent_bytes) == schedule.sent_bytes


@pytest.mark.parametrize("name", with_more(ALWAYS, [name for name in PLAYED if ZOO[name].draws]))
def test_draws_do_not_depend_on_the_placement(graphs, name):
    program = ZOO[name].program()
    graph = graphs(name)
    found = []
    for ranks in (1, RANKS):
        owners = random_owners(graph, CHUNKS, ranks, seed=len(name))
        placement = Placement(num_chunks=CHUNKS, world_size=ranks, owners=owners)
        played = play(
            program, graph, placed_plan(program, owners, ranks, buckets_of(graph, placement, "ring", 4096)), STEPS
        )
        found.append(played)
    assert difference(found[1].state, found[0].state) <= 1e-9
    assert found[1].losses == pytest.approx(found[0].losses, rel=1e-9)


def test_the_zoo_holds_every_capture_that_keeps_operators_apart(graphs):
    assert len(ZOO) >= 20
    assert {graphs(name).capture for name in ("vit", "gpt")} == {"fx"}, "sizes are followed"
