"""Weights that forward itself writes to, whether or not that changes a value when the program is tried."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from writing import ANOTHERS, OWN
from zoo import Net, rows

from nfold.capture.capture import capture
from nfold.capture.cutting.captured import Captured
from nfold.capture.program.weight_writes import WeightWrites


def captured(build: Callable[[], nn.Module]) -> Captured:
    net = Net(build, rows)
    return capture(net.model(), net.loss, net.example(), rebuild=net.model)


@pytest.mark.parametrize(("build", "name"), (OWN | ANOTHERS).items(), ids=lambda each: getattr(each, "__name__", each))
def test_a_weight_that_forward_writes_to_is_named_and_forbids_chunks(build: Callable[[], nn.Module], name: str) -> None:
    graph = captured(build).graph
    assert graph.indivisible.startswith(f"forward changes {name}")
    assert name in [each.name for each in graph.parameters if each.written]


@pytest.mark.parametrize("build", OWN, ids=lambda build: build.__name__)
def test_only_the_module_that_writes_to_its_own_weight_stays_whole(build: Callable[[], nn.Module]) -> None:
    graph = captured(build).graph
    assert graph.capture == "fx"
    assert {"first", "last"} <= {operator.name for operator in graph.operators}


@pytest.mark.parametrize("build", ANOTHERS, ids=lambda build: build.__name__)
def test_what_is_written_to_elsewhere_than_used_keeps_the_model_whole(build: Callable[[], nn.Module]) -> None:
    assert captured(build).graph.capture == "opaque"


def test_what_is_not_written_to_is_not_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LSTM(4, 4))
    with WeightWrites(model) as writes:
        model(torch.randn(3, 4))[0].sum().backward()
    assert writes.weights() == []


def test_writes_to_several_tensors_at_once_and_to_views_are_seen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with WeightWrites(model) as writes, torch.no_grad():
        torch._foreach_mul_([model[0].bias], 1.0)
        model[1].weight.t()[:2].zero_()
    assert writes.weights() == [("0", "bias"), ("1", "weight")]
