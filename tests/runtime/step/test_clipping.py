"""Gradients clipped by their norm over all parameters: one device's parameters, whoever holds which part of them."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from harness import difference, graph_of, make_plan, placed_plan, plain_loop, play, random_owners, with_more
from nets import adamw, program, sgd
from torch import nn

from nfold.core.placement import Placement
from nfold.errors import ProgramError
from nfold.planning.reductions.buckets import bounds, buckets_of, fill_buckets
from nfold.planning.reductions.shares import cut_shares
from nfold.program import Program
from nfold.runtime.step.clipping import clip_factor

STEPS, CHUNKS, TIGHT = 4, 6, 0.3
WAYS = [("single", 1, 0), ("ring", 3, 0), ("ps", 3, 2), ("weighted", 3, 1)]


def clipped(net: str, optimizer=sgd, limit: float = TIGHT) -> Program:
    return replace(program(net, optimizer), clip_norm=limit)


@pytest.fixture(scope="module")
def graphs():
    return cache(lambda net: graph_of(clipped(net)))


@pytest.fixture(scope="module")
def plain_states():
    return cache(lambda make, net: plain_loop(make(net), STEPS, CHUNKS).state_dict())


@pytest.mark.parametrize("net", ["residual", "tied", "unused"])
@pytest.mark.parametrize(("strategy", "workers", "servers"), WAYS)
def test_every_strategy_equals_a_plain_loop_that_clips(graphs, plain_states, net, strategy, workers, servers):
    mine, graph = clipped(net), graphs(net)
    plan = make_plan(mine, graph, strategy, workers, servers, CHUNKS)
    played = play(mine, graph, plan, STEPS)
    assert difference(played.state, plain_states(clipped, net)) <= 1e-9
    assert difference(played.state, plain_states(program, net)) > 1e-3, "the limit was met"
    assert sum(played.sent_bytes) == plan.predicted.sent_bytes_per_step


@pytest.mark.parametrize(
    ("net", "world", "seed"),
    with_more([("residual", 4, 2)], [("plain", 3, 1), ("residual", 2, 0), ("residual", 4, 2), ("tied", 3, 1)]),
)
def test_random_placements_equal_a_plain_loop_that_clips(graphs, net, world, seed):
    mine, graph = clipped(net, adamw), graphs(net)
    owners = random_owners(graph, CHUNKS, world, seed)
    placement = Placement(num_chunks=CHUNKS, world_size=world, owners=owners)
    reductions = buckets_of(graph, placement, "ring", 512)
    played = play(mine, graph, placed_plan(mine, owners, world, reductions), STEPS)
    assert difference(played.state, plain_loop(mine, STEPS, CHUNKS).state_dict()) <= 1e-9


@pytest.mark.parametrize("whole", [False, True])
def test_many_shares_of_each_server_count_every_element_once(graphs, whole):
    mine, graph = clipped("residual", adamw), graphs("residual")
    reductions = tuple(
        replace(
            each,
            shares=cut_shares(each, {1: 1.0, 2: 0.4, 3: 2.0}, 5, bounds(each, graph) if whole else ()),
            piece_elements=99,
        )
        for each in fill_buckets(graph, (0, 1, 2), "server", 1 << 12)
    )
    owners = {operator.name: (0, 0, 1, 1, 2, 2) for operator in graph.operators}
    plan = replace(placed_plan(mine, owners, 4, reductions), workers=3, servers=1)
    played = play(mine, graph, plan, STEPS)
    assert difference(played.state, plain_loop(mine, STEPS, CHUNKS).state_dict()) <= 1e-9


def test_a_limit_that_is_never_met_changes_no_bit(graphs):
    free, loose = program("plain"), clipped("plain", limit=1e9)
    plans = [make_plan(loose, each, "ring", 3, 0, CHUNKS) for each in (graph_of(free), graphs("plain"))]
    one, other = play(free, graph_of(free), plans[0], STEPS), play(loose, graphs("plain"), plans[1], STEPS)
    assert all(torch.equal(one.state[name], tensor) for name, tensor in other.state.items())


@pytest.mark.parametrize(("strategy", "workers", "servers"), WAYS)
def test_runs_repeat_and_resume_bit_for_bit(graphs, strategy, workers, servers):
    mine, graph = clipped("residual", adamw), graphs("residual")
    plan = make_plan(mine, graph, strategy, workers, servers, CHUNKS)
    through = play(mine, graph, plan, STEPS)
    half = play(mine, graph, plan, STEPS // 2)
    resumed = play(mine, graph, plan, STEPS, checkpoint=half.checkpoint)
    assert all(torch.equal(resumed.state[name], tensor) for name, tensor in through.state.items())


def test_a_bucket_smaller_than_its_ring_is_counted_once(graphs):
    mine, graph = clipped("plain"), graphs("plain")
    owners = {operator.name: tuple(range(CHUNKS)) for operator in graph.operators}
    placement = Placement(num_chunks=CHUNKS, world_size=CHUNKS, owners=owners)
    reductions = buckets_of(graph, placement, "ring", 8)
    assert min(each.num_elements for each in reductions) < CHUNKS
    played = play(mine, graph, placed_plan(mine, owners, CHUNKS, reductions), STEPS)
    assert difference(played.state, plain_loop(mine, STEPS, CHUNKS).state_dict()) <= 1e-9


def test_an_optimizer_that_must_see_everything_gets_clipped_gradients():
    def coupled(parameters):
        return Coupled(parameters, lr=0.05)

    mine = clipped("plain", coupled)
    graph = graph_of(mine)
    assert graph.update_scope == "model"
    played = play(mine, graph, make_plan(mine, graph, "ring", 3, 0, CHUNKS), STEPS)
    assert difference(played.state, plain_loop(mine, STEPS, CHUNKS).state_dict()) <= 1e-9


class Coupled(torch.optim.SGD):
    """Every step depends on all gradients."""

    def step(self, closure=None):
        own = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        total = sum(float(p.grad.abs().sum()) for p in own)
        for p in own:
            p.grad.div_(1 + total)
        super().step(closure)


def test_the_factor_is_torchs():
    for norm in (0.0, 1e-9, 0.29, 0.3, 0.31, 5.0, 1e30, float("inf")):
        weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        weight.grad = torch.full_like(weight, norm)
        nn.utils.clip_grad_norm_([weight], TIGHT)
        ours = torch.full_like(weight, norm) * clip_factor(norm, TIGHT)
        torch.testing.assert_close(ours.detach(), weight.grad, rtol=1e-15, atol=0.0, equal_nan=True)
    assert clip_factor(float("nan"), TIGHT) != clip_factor(float("nan"), TIGHT)


def test_another_program_than_the_one_that_was_planned_is_refused(graphs):
    plan = make_plan(clipped("plain"), graphs("plain"), "single", 1, 0, CHUNKS)
    with pytest.raises(ProgramError, match="Put it back, or begin a new run"):
        play(program("plain"), graphs("plain"), plan, 1)
