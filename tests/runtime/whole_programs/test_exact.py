"""With --exact every synchronous plan ends with the bits of one device, whatever it is, and tells its bytes."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from harness import CPU, difference, graph_of, make_plan, plain_loop, play, read_checkpoint, with_more
from nets import NETS, adamw, images, program
from torch.utils.data import TensorDataset

from nfold.errors import PlanError, RunError
from nfold.program import Program
from nfold.runtime.rank import cut_trial
from nfold.runtime.rank.agreed_gradients import BITS, agreed_gradients, fraction_bits
from nfold.runtime.rank.cut_trial import why_cut_inexact

STEPS, CHUNKS = 4, 4
PLANS = [
    ("ring", 2, 0), ("ring", 3, 0), ("ps", 3, 0), ("ps", 2, 1), ("weighted", 2, 1), ("pipeline", 2, 0),
    ("hybrid", 3, 0), ("hypergraph", 2, 0), ("hypergraph", 3, 0),
]  # fmt: skip
KEPT = [
    ("float32", "residual", ("ring", 3, 0)),
    ("float32", "plain", ("ps", 2, 1)),
    ("float64", "residual", ("pipeline", 2, 0)),
    ("float32", "dropping", ("hypergraph", 3, 0)),
    ("float32", "tied", ("ps", 3, 0)),
]
EVERY = [(dtype, net, plan) for dtype in ("float32", "float64") for net in NETS for plan in PLANS]
APART = {("tied", "hybrid"), ("tied", "hypergraph")}
"""Nets and strategies that cut apart what uses one weight, if they have three workers."""


def single_images() -> TensorDataset:
    inputs, targets = images().tensors
    return TensorDataset(inputs.float(), targets)


def clipped(net: str, dtype: str) -> Program:
    mine = replace(program(net, adamw), clip_norm=0.1)
    return mine if dtype == "float64" else replace(mine, model=lambda: NETS[net](), train_data=single_images)


@cache
def prepared(net, dtype):
    """The program, its graph, the unit, and what one device comes to."""
    mine = clipped(net, dtype)
    graph, dataset = graph_of(mine), mine.train_data()
    bits = agreed_gradients(mine, dataset, CPU)["fraction_bits"]
    graph = replace(graph, inexact_cut=why_cut_inexact(mine, graph, dataset))
    return mine, graph, bits, play(mine, graph, planned(mine, graph, bits, ("single", 1, 0)), STEPS)


def planned(mine, graph, bits, plan):
    return make_plan(mine, graph, *plan, CHUNKS, fraction_bits=bits)


def unlike(one, other):
    return [name for name, tensor in one.items() if not torch.equal(tensor, other[name])]


@pytest.mark.parametrize(("dtype", "net", "plan"), with_more(KEPT, EVERY))
def test_a_plan_ends_with_the_bits_of_one_device(dtype, net, plan):
    mine, graph, bits, alone = prepared(net, dtype)
    if (net, plan[0]) in APART and plan[1] == 3:
        with pytest.raises(PlanError, match=r"the operators that use encode\.weight are cut apart"):
            planned(mine, graph, bits, plan)
        return
    found = planned(mine, graph, bits, plan)
    played = play(mine, graph, found, STEPS)
    assert played.losses == alone.losses
    assert not unlike(alone.state, played.state)
    assert sum(played.sent_bytes) == found.predicted.sent_bytes_per_step


def test_one_device_ends_near_a_plain_loop():
    mine, _, _, alone = prepared("residual", "float64")
    assert difference(alone.state, plain_loop(mine, STEPS, CHUNKS).state_dict()) <= 1e-9


def test_a_run_goes_on_under_another_plan_with_the_same_bits():
    mine, graph, bits, alone = prepared("plain", "float32")
    first = play(mine, graph, planned(mine, graph, bits, ("ring", 3, 0)), 2)
    assert read_checkpoint(first.checkpoint).step == 2
    rest = play(mine, graph, planned(mine, graph, bits, ("ps", 2, 0)), STEPS, checkpoint=first.checkpoint)
    assert not unlike(alone.state, rest.state)


def test_a_gradient_without_room_ends_the_run_and_is_named():
    mine, graph, bits, _ = prepared("plain", "float32")
    with pytest.raises(RunError, match=r"a gradient of \S+ is \S+, and --exact sums those between -\S+ and \S+:"):
        play(mine, graph, planned(mine, graph, bits + 20, ("ring", 2, 0)), 1)


def test_the_unit_follows_the_largest_gradient():
    assert [fraction_bits(size) for size in (1.5, 0.75, 3.0, 0.0, float("inf"))] == [
        BITS - 1,
        BITS,
        BITS - 2,
        BITS,
        BITS,
    ]


def test_other_weights_have_another_checksum_and_equal_ones_the_same():
    mine = clipped("plain", "float32")
    told = [agreed_gradients(each, single_images(), CPU)["checksum"] for each in (mine, mine, replace(mine, seed=4))]
    assert told[0] == told[1] != told[2]


def test_an_operator_that_rounds_otherwise_alone_is_found(monkeypatch):
    mine, graph, _, _ = prepared("plain", "float32")
    assert graph.inexact_cut == ""
    sent = cut_trial._Apart._sent
    monkeypatch.setattr(cut_trial._Apart, "_sent", lambda self, name, value: sent(self, name, value) * (1 + 2**-22))
    assert "operators by themselves give conv.weight a gradient of other bits" in why_cut_inexact(
        mine, graph, single_images()
    )
