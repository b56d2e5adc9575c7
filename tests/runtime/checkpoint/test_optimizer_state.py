"""A run goes on bit for bit from what its optimizer's own state_dict() gave, and under another plan, too."""

import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from harness import graph_of, make_plan, play
from torch import nn
from torch.utils.data import TensorDataset

from nfold.errors import ProgramError
from nfold.program import Program

sys.path.insert(0, str(Path(__file__).parents[2] / "capture"))
import keepers

STEPS, HALF, CHUNKS = 9, 4, 2
WAYS = [("single", 1, 0), ("ring", 2, 0)]


def program(optimizer):
    def data():
        x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        return TensorDataset(x, (x[:, 0] > 0).long())

    return Program(
        model=keepers.net, loss=nn.functional.cross_entropy, optimizer=optimizer, train_data=data, batch_size=16
    )


@pytest.fixture(scope="module")
def graphs():
    return cache(lambda kind: graph_of(program(kind)))


@pytest.mark.parametrize("kind", keepers.KEPT)
def test_a_run_goes_on_bit_for_bit_also_under_another_plan(graphs, kind):
    mine, graph = program(kind), graphs(kind)
    plans = [make_plan(mine, graph, *way, CHUNKS) for way in WAYS]
    through = [play(mine, graph, plan, STEPS).state for plan in plans]
    for begun in plans:
        half = play(mine, graph, begun, HALF).checkpoint
        for plan, expected in zip(plans, through, strict=True):
            found = play(mine, graph, plan, STEPS, checkpoint=half).state
            if plan is begun:
                assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
            else:
                assert all(torch.allclose(found[name], tensor, atol=1e-5) for name, tensor in expected.items())


def test_another_optimizer_is_refused(graphs):
    mine = program(keepers.Outer)
    half = play(mine, graphs(keepers.Outer), make_plan(mine, graphs(keepers.Outer), *WAYS[0], CHUNKS), HALF).checkpoint
    other = program(keepers.Two)
    with pytest.raises(ProgramError, match="begun with the optimizer Outer, and the program has Two now"):
        play(
            other, graphs(keepers.Two), make_plan(other, graphs(keepers.Two), *WAYS[0], CHUNKS), STEPS, checkpoint=half
        )


def test_a_checkpoint_without_it_is_refused(graphs):
    plain = program(lambda params: torch.optim.SGD(params, lr=0.1))
    graph = graph_of(plain)
    half = play(plain, graph, make_plan(plain, graph, *WAYS[0], CHUNKS), HALF).checkpoint
    mine = program(keepers.Outer)
    with pytest.raises(ProgramError, match=r"does not have what state_dict\(\) of Outer gives"):
        play(
            mine,
            graphs(keepers.Outer),
            make_plan(mine, graphs(keepers.Outer), *WAYS[0], CHUNKS),
            STEPS,
            checkpoint=half,
        )
