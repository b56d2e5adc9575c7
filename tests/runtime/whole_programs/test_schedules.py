"""Schedules and groups by name: one device's parameters, however many optimizers a rank has."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from harness import difference, graph_of, make_plan, placed_plan, plain_loop, play, random_owners, with_more
from nets import adamw, program, sgd
from torch.optim import AdamW, lr_scheduler

from nfold.core.placement import Placement
from nfold.errors import ProgramError
from nfold.planning.reductions.buckets import buckets_of

STEPS, CHUNKS = 5, 6
WAYS = [("single", 1, 0), ("ring", 3, 0), ("ps", 3, 2), ("weighted", 3, 1)]


def warm_up_then_cosine(optimizer):
    rising = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    return lr_scheduler.SequentialLR(optimizer, [rising, lr_scheduler.CosineAnnealingLR(optimizer, 20)], [3])


def one_cycle(optimizer):
    return lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=STEPS)


def by_name(named_parameters):
    pairs = list(named_parameters)
    groups = [
        {"params": [p for name, p in pairs if "norm" in name or name.endswith("bias")], "weight_decay": 0.0},
        {"params": [p for name, p in pairs if "norm" not in name and not name.endswith("bias")], "weight_decay": 0.3},
    ]
    return AdamW(groups, lr=1e-2, eps=1e-2)


def by_shape(params):
    params = list(params)
    groups = [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.3},
        {"params": [p for p in params if p.ndim <= 1], "lr": 1e-3},
    ]
    return AdamW(groups, lr=1e-2, eps=1e-2)


PROGRAMS = {
    "warm-up": replace(program("residual", sgd), scheduler=warm_up_then_cosine),
    "one cycle": replace(program("plain", sgd), scheduler=one_cycle),
    "groups by name": program("residual", by_name),
    "groups by shape": program("residual", by_shape),
    "everything": replace(program("residual", by_name), scheduler=warm_up_then_cosine, clip_norm=0.3),
}


@pytest.fixture(scope="module")
def graphs():
    return cache(lambda name: graph_of(PROGRAMS[name]))


@pytest.fixture(scope="module")
def plain_states():
    return cache(lambda name: plain_loop(PROGRAMS[name], STEPS, CHUNKS).state_dict())


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("strategy", "workers", "servers"), WAYS)
def test_every_strategy_equals_a_plain_loop(graphs, plain_states, name, strategy, workers, servers):
    mine, graph = PROGRAMS[name], graphs(name)
    played = play(mine, graph, make_plan(mine, graph, strategy, workers, servers, CHUNKS), STEPS)
    assert difference(played.state, plain_states(name)) <= 1e-9


@pytest.mark.parametrize("name", with_more(("one cycle", "everything"), PROGRAMS))
def test_random_placements_equal_a_plain_loop(graphs, plain_states, name):
    mine, graph = PROGRAMS[name], graphs(name)
    owners = random_owners(graph, CHUNKS, 3, 1)
    placement = Placement(num_chunks=CHUNKS, world_size=3, owners=owners)
    plan = placed_plan(mine, owners, 3, buckets_of(graph, placement, "ring", 2048))
    assert difference(play(mine, graph, plan, STEPS).state, plain_states(name)) <= 1e-9


def test_the_plain_loop_minds_each_of_these():
    plain = plain_loop(program("residual", sgd), STEPS, CHUNKS).state_dict()
    assert difference(plain_loop(PROGRAMS["warm-up"], STEPS, CHUNKS).state_dict(), plain) > 1e-3
    same = plain_loop(program("residual", lambda params: AdamW(params, lr=1e-2, eps=1e-2)), STEPS, CHUNKS).state_dict()
    for name in ("groups by name", "groups by shape"):
        assert difference(plain_loop(PROGRAMS[name], STEPS, CHUNKS).state_dict(), same) > 1e-4


@pytest.mark.parametrize("name", ["warm-up", "one cycle", "everything"])
def test_a_run_goes_on_bit_for_bit_also_under_other_plans(graphs, name):
    mine, graph = PROGRAMS[name], graphs(name)
    plans = [make_plan(mine, graph, *way, CHUNKS) for way in (("ps", 3, 2), ("ring", 3, 0))]
    through = play(mine, graph, plans[0], STEPS).state
    half = play(mine, graph, plans[0], 4).checkpoint
    resumed = play(mine, graph, plans[0], STEPS, checkpoint=half).state
    assert all(torch.equal(resumed[key], tensor) for key, tensor in through.items())
    assert difference(play(mine, graph, plans[1], STEPS, checkpoint=half).state, through) <= 1e-9


def test_a_schedule_that_is_too_short_ends_the_run_with_the_step():
    def short(optimizer):
        return lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=3)

    mine = replace(program("plain", adamw), scheduler=short)
    graph = graph_of(mine)
    with pytest.raises(ProgramError, match=r"after step 4\. .* must last for all steps"):
        play(mine, graph, make_plan(mine, graph, "ring", 2, 0, CHUNKS), 5)


def test_groups_by_name_let_servers_cut_a_parameter(graphs):
    assert graphs("groups by name").update_scope == "element"
    assert graphs("groups by shape").update_scope == "parameter"
