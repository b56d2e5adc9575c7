"""Operators in parts on any ranks train as one device does, and leave whole parameters behind."""

import random
from dataclasses import replace
from functools import cache

import pytest
import torch
from harness import CPU, difference, graph_of, placed_plan, plain_loop, play, read_checkpoint, with_more
from nets import CLASSES, adamw, double, program, sgd
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from nfold.capture.program.building import build_model
from nfold.core.graph import ModelGraph
from nfold.core.options.averages import Averages
from nfold.core.placement import Placement
from nfold.core.plan import Plan
from nfold.planning.operator_parts.splitting import split_graph
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.reductions.shares import cut_shares
from nfold.planning.scheduling.schedule_compiler import compile_schedule
from nfold.program import Program

STEPS, CHUNKS = 4, 4


class Towers(nn.Module):
    """Grouped convolutions and pooling, then features, all of which can be cut, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3, padding=1)
        self.grouped = nn.Conv2d(6, 8, 3, groups=2, bias=False)
        self.depthwise = nn.Conv2d(8, 8, 2, groups=8)
        self.frozen = nn.Linear(32, 10).requires_grad_(False)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.grouped(F.max_pool2d(F.relu(self.stem(x)), 2)), inplace=True)
        return self.head(torch.tanh(self.frozen(torch.flatten(F.pad(self.depthwise(x), (0, 1, 0, 1)), 1))))


CASES = {
    "plain": {"conv": 2, "deeper": 3, "fc": 2},
    "residual": {"stem": 5, "one.a": 2, "two.b": 3, "fc": 4},
    "dropping": {"body.1": 3, "head": 2},
    "unused": {"fc": 4, "frozen": 3},
    "towers": {"stem": 2, "grouped": 2, "depthwise": 3, "frozen": 2, "head": 4},
}


def program_of(net: str, optimizer=sgd) -> Program:
    if net != "towers":
        return program(net, optimizer)
    return replace(program("plain", optimizer), model=double(Towers))


@pytest.fixture(scope="module")
def graphs():
    return cache(lambda net: graph_of(program_of(net)))


def random_plan(mine: Program, graph: ModelGraph, splits: dict[str, int], world: int, seed: int, route="ring") -> Plan:
    """Each part's chunks on random ranks: every chunk by itself, or all of them together."""
    chosen = random.Random(seed)
    parts = split_graph(graph, splits)
    owners = {}
    for operator in parts.operators:
        together = chosen.random() < 0.5
        ranks = [chosen.randrange(world) for _ in range(CHUNKS)]
        owners[operator.name] = (ranks[0],) * CHUNKS if together else tuple(ranks)
    for operator in parts.operators:
        if operator.statistics:  # they are folded where the whole module is
            owners[operator.name] = (chosen.randrange(world),) * CHUNKS
    placement = Placement(num_chunks=CHUNKS, world_size=world, owners=owners)
    reductions = buckets_of(parts, placement, route, 4096)
    if route == "server":
        weights = dict.fromkeys(range(world), 1.0)
        served = [each for each in reductions if each.route == "server"]
        shares = {each.name: cut_shares(each, weights) for each in served}
        reductions = tuple(replace(each, shares=shares.get(each.name, ())) for each in reductions)
    return replace(placed_plan(mine, owners, world, reductions), splits=splits)


@pytest.mark.parametrize("net", with_more(("residual", "dropping", "towers"), CASES))
@pytest.mark.parametrize(("world", "seed", "optimizer"), [(2, 0, sgd), (3, 1, adamw)])
def test_parts_anywhere_train_as_one_device_does(graphs, net, world, seed, optimizer):
    mine, graph = program_of(net, optimizer), graphs(net)
    played = play(mine, graph, random_plan(mine, graph, CASES[net], world, seed), STEPS)
    if net == "dropping":
        whole = random_plan(mine, graph, {}, 2, seed)
        expected = play(mine, graph, whole, STEPS).state
    else:
        expected = plain_loop(mine, STEPS, CHUNKS).state_dict()
    assert difference(played.state, expected) <= 1e-9


@pytest.mark.parametrize("net", ["plain", "towers"])
def test_one_rank_computes_parts_one_after_another(graphs, net):
    mine, graph = program_of(net), graphs(net)
    played = play(mine, graph, random_plan(mine, graph, CASES[net], 1, 0), STEPS)
    assert difference(played.state, plain_loop(mine, STEPS, CHUNKS).state_dict()) <= 1e-12


@pytest.mark.exhaustive
def test_parameter_servers_serve_rows(graphs):
    mine, graph = program_of("towers"), graphs("towers")
    played = play(mine, graph, random_plan(mine, graph, CASES["towers"], 3, 4, "server"), STEPS)
    assert difference(played.state, plain_loop(mine, STEPS, CHUNKS).state_dict()) <= 1e-9


@pytest.mark.parametrize("net", with_more(("residual", "towers"), ("plain", "residual", "towers")))
def test_the_bytes_of_parts_are_predicted(graphs, net):
    mine, graph = program_of(net), graphs(net)
    plan = random_plan(mine, graph, CASES[net], 3, 5)
    parts = split_graph(graph, plan.splits)
    schedule = compile_schedule(parts, plan.placement, plan.reductions, batch_size=mine.batch_size)
    assert sum(play(mine, graph, plan, 1).sent_bytes) == schedule.sent_bytes > 0


@pytest.mark.parametrize(
    ("before", "after"), with_more(((True, False), (False, True)), [(True, False), (False, True), (True, True)])
)
def test_a_run_goes_on_with_other_parts_or_none(graphs, before, after):
    mine, graph = program_of("towers", adamw), graphs("towers")
    first = random_plan(mine, graph, CASES["towers"] if before else {}, 3, 6)
    second = random_plan(mine, graph, {"grouped": 2, "head": 2} if after else {}, 2, 7)
    stopped = play(mine, graph, first, 3)
    resumed = play(mine, graph, second, STEPS, checkpoint=stopped.checkpoint)
    assert difference(resumed.state, plain_loop(mine, STEPS, CHUNKS).state_dict()) <= 1e-9


def test_a_checkpoint_of_parts_is_the_whole_models(graphs):
    mine, graph = program_of("towers", adamw), graphs("towers")
    parts, whole = (
        read_checkpoint(play(mine, graph, random_plan(mine, graph, splits, 2, 8), 2).checkpoint)
        for splits in (CASES["towers"], {})
    )
    assert parts.model().keys() == whole.model().keys()
    kept = 0
    for name, value in whole.model().items():
        in_parts, at_once = (each.piece(name, tuple(value.shape), 0, value.numel()) for each in (parts, whole))
        assert in_parts.scalars == at_once.scalars
        assert in_parts.groups.keys() == at_once.groups.keys()
        found, tensors = in_parts.tensors[name], at_once.tensors[name]
        kept += len(tensors)
        assert difference(found, tensors) <= 1e-9
        assert {key: each.shape for key, each in found.items()} == {key: each.shape for key, each in tensors.items()}
    assert kept > 0


@pytest.mark.parametrize("route", with_more(("ring",), ("ring", "server")))
def test_averages_of_parts_are_those_of_the_whole_model(graphs, route):
    mine, graph = replace(program_of("residual"), averages=Averages(decay=0.6)), graphs("residual")
    split = random_plan(mine, graph, CASES["residual"], 3, 6, route)
    states = [play(mine, graph, split, steps) for steps in (1, 2)]
    whole = build_model(mine, CPU)
    average = AveragedModel(whole, multi_avg_fn=get_ema_multi_avg_fn(0.6))
    for each in states:
        whole.load_state_dict(each.state)
        average.update_parameters(whole)
    unsplit = play(mine, graph, random_plan(mine, graph, {}, 2, 7), 2, checkpoint=states[-1].checkpoint)
    again = play(mine, graph, random_plan(mine, graph, CASES["residual"], 2, 8), 2, checkpoint=unsplit.checkpoint)
    for checkpoint in (states[-1].checkpoint, unsplit.checkpoint, again.checkpoint):
        for name, wanted in average.module.state_dict().items():
            found = read_checkpoint(checkpoint).average(name, 0, wanted.numel())
            assert torch.equal(found.view(wanted.shape), wanted), name
