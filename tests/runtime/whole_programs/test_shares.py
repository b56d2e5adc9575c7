"""A bucket in many shares, several of one rank: the same parameters, whoever serves which part in how many rounds."""

from dataclasses import replace

import pytest
import torch
from harness import difference, graph_of, make_plan, placed_plan, plain_loop, play
from nets import adamw, program
from torch import nn
from torch.utils.data import TensorDataset

from nfold.planning.reductions.buckets import bounds, fill_buckets
from nfold.planning.reductions.shares import cut_shares

STEPS, CHUNKS = 4, 6
LAYOUTS = {
    "one rank serves": {2: 1.0},
    "everybody, five rounds": {0: 1.0, 1: 1.0, 2: 1.0},
    "the first has nothing": {1: 1.0, 2: 0.4},
    "workers and a dedicated server": {0: 0.2, 1: 1.0, 2: 0.7, 3: 3.0},
    "dedicated servers only": {3: 1.0, 4: 2.0},
}


@pytest.fixture(scope="module")
def graph():
    return graph_of(program("residual", adamw))


@pytest.fixture(scope="module")
def plain_state():
    return plain_loop(program("residual", adamw), STEPS, CHUNKS).state_dict()


def layout(mine, graph, weights, rounds, whole=False, bucket_bytes=1 << 12):
    """Three workers, and as many servers as the weights name."""
    world = max(3, 1 + max(weights))
    buckets = fill_buckets(graph, (0, 1, 2), "server", bucket_bytes)
    reductions = tuple(
        replace(each, shares=cut_shares(each, weights, rounds, bounds(each, graph) if whole else ()), piece_elements=99)
        for each in buckets
    )
    owners = {operator.name: (0, 0, 1, 1, 2, 2) for operator in graph.operators}
    return replace(placed_plan(mine, owners, world, reductions), workers=3, servers=world - 3)


@pytest.mark.parametrize(("rounds", "whole"), [(1, True), (5, False)])
@pytest.mark.parametrize("weights", LAYOUTS.values(), ids=LAYOUTS)
def test_any_layout_of_shares_gives_one_devices_parameters(graph, plain_state, weights, rounds, whole):
    mine = program("residual", adamw)
    played = play(mine, graph, layout(mine, graph, weights, rounds, whole), STEPS)
    assert difference(played.state, plain_state) <= 1e-9


def test_sums_have_the_same_bits_whoever_serves(graph):
    mine = program("residual", adamw)
    states = [play(mine, graph, layout(mine, graph, weights, 3), 2).state for weights in LAYOUTS.values()]
    for other in states[1:]:
        assert all(torch.equal(other[name], tensor) for name, tensor in states[0].items())


def test_optimizer_state_of_many_shares_is_saved_whole_and_restored_under_another_layout(graph):
    mine = program("residual", adamw)
    plans = [layout(mine, graph, weights, rounds) for rounds, weights in enumerate(LAYOUTS.values(), 1)]
    through = play(mine, graph, plans[0], len(plans)).state
    checkpoint = b""
    for number, plan in enumerate(plans):
        checkpoint = play(mine, graph, plan, number + 1, checkpoint=checkpoint).checkpoint
    resumed = play(mine, graph, make_plan(mine, graph, "single", 1, 0, CHUNKS), len(plans), checkpoint=checkpoint)
    assert all(torch.equal(resumed.state[name], tensor) for name, tensor in through.items())


class Rotating(nn.Module):
    """Reads a weight as complex numbers, which torch does at even places of a buffer alone."""

    def __init__(self):
        super().__init__()
        self.pairs = nn.Parameter(torch.randn(8, 2, dtype=torch.float64))
        self.linear = nn.Linear(8, 3, dtype=torch.float64)

    def forward(self, inputs):
        turned = torch.fft.fft(inputs) * torch.view_as_complex(self.pairs)
        return self.linear(turned.real)


def vectors():
    rows = torch.randn(48, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return TensorDataset(rows, torch.arange(48) % 3)


def test_a_weight_that_is_read_as_complex_numbers_is_served():
    mine = replace(program("residual", adamw), model=Rotating, train_data=vectors)
    graph = graph_of(mine)
    played = play(mine, graph, make_plan(mine, graph, "ps", 2, 0, 2), STEPS)
    assert difference(played.state, plain_loop(mine, STEPS, 2).state_dict()) <= 1e-9
