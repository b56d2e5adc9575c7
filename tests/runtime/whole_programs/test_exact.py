"""With --exact every synchronous plan ends with the bits of one device, whatever it is."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from harness import graph_of, make_plan, plain_loop, play, difference, with_more
from nets import NETS, adamw, images, program
from torch.utils.data import TensorDataset

from nfold.errors import PlanError, RunError
from nfold.program import Program
from nfold.runtime.rank.agreed_gradients import agreed_gradients
from nfold.runtime.rank.cut_trial import why_cut_inexact

STEPS, CHUNKS = 4, 4
CPU = torch.device("cpu")
PLANS = [("ring", 2, 0), ("ring", 3, 0), ("ps", 3, 0), ("ps", 2, 1), ("weighted", 2, 1), ("pipeline", 2, 0), ("hybrid", 3, 0)]
PLANS += [("hypergraph", 2, 0), ("hypergraph", 3, 0)]
KEPT = [("float32", "residual", ("ring", 3, 0)), ("float32", "plain", ("ps", 2, 1)), ("float64", "residual", ("pipeline", 2, 0))]
KEPT += [("float32", "dropping", ("hypergraph", 3, 0)), ("float32", "tied", ("ps", 3, 0))]
EVERY = [(dtype, net, plan) for dtype in ("float32", "float64") for net in NETS for plan in PLANS]


def single_images():
    inputs, targets = images().tensors
    return TensorDataset(inputs.float(), targets)


def clipped(net: str, dtype: str) -> Program:
    mine = replace(program(net, adamw), clip_norm=0.1)
    if dtype == "float64":
        return mine
    return replace(mine, model=lambda: NETS[net](), train_data=single_images)


@cache
def prepared(net, dtype):
    mine = clipped(net, dtype)
    graph = graph_of(mine)
    dataset = mine.train_data()
    bits = agreed_gradients(mine, dataset, CPU)["fraction_bits"]
    graph = replace(graph, inexact_cut=why_cut_inexact(mine, graph, dataset))
    alone = play(mine, graph, make_plan(mine, graph, "single", 1, 0, CHUNKS, fraction_bits=bits), STEPS)
    return mine, graph, bits, alone


@pytest.mark.parametrize(("dtype", "net", "plan"), with_more(KEPT, EVERY))
def test_a_plan_ends_with_the_bits_of_one_device(dtype, net, plan):
    mine, graph, bits, alone = prepared(net, dtype)
    strategy, workers, servers = plan
    try:
        found = make_plan(mine, graph, strategy, workers, servers, CHUNKS, fraction_bits=bits)
    except PlanError as error:
        print("REFUSED", dtype, net, plan, error)
        return
    played = play(mine, graph, found, STEPS)
    assert played.losses == alone.losses
    unlike = [name for name, tensor in alone.state.items() if not torch.equal(tensor, played.state[name])]
    assert not unlike
    assert sum(played.sent_bytes) == found.predicted.sent_bytes_per_step
