"""What capture does for a net of twice as many layers is twice as much, counted in calls and not in seconds."""

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from zoo import CLASSES, Net, rows

from nfold.capture import capture
from nfold.capture.cutting.captured import Captured
from nfold.capture.describe import describe
from nfold.capture.side_effects.module_states import fresh_copies

WIDTH = 12


def captured(depth: int) -> Captured:
    def build() -> nn.Module:
        layers = [each for _ in range(depth) for each in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))

    net = Net(build, rows)
    return capture(net.model(), net.loss, net.example())


def test_all_weights_are_named_as_often_in_a_deep_net(monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[nn.Module] = []
    own = nn.Module.named_parameters

    def counted(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        walks.append(module)
        return own(module, *args, **kwargs)

    def watched(traced: Any, pieces: Any, plays: Any, facts: Any, model: nn.Module) -> Captured:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nn.Module, "named_parameters", counted)
            found = describe(traced, pieces, plays, facts, model)
        counts.append(sum(each is model for each in walks))
        return found

    counts: list[int] = []
    monkeypatch.setattr(importlib.import_module("nfold.capture.capture_attempt"), "describe", watched)
    for depth in (2, 8):
        walks.clear()
        captured(depth)
    assert counts[0] == counts[1] > 0


class Walked(tuple[Any, ...]):
    """A tuple that counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).times += 1
        return super().__iter__()


def test_no_operator_looks_through_all_tensors_for_its_own() -> None:
    found = captured(4)
    bound = Captured(replace(found.graph, tensors=Walked(found.graph.tensors)), found.layout, found.model)
    names = [operator.name for operator in found.graph.operators]
    assert [bound.boundary([name])[1] for name in names] == [each.outputs for each in found.graph.operators]
    assert bound.boundary(names) == (("input", "target"), ("loss",))
    assert Walked.times == 1


def test_a_copy_has_places_for_hooks_of_its_own() -> None:
    net = Net(lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES)), rows)
    model = net.model()
    copies = [fresh_copies(model, None)() for _ in range(2)]
    copies[0][0].register_forward_hook(lambda *_: None)
    assert [len(each[0]._forward_hooks) for each in (model, *copies)] == [0, 1, 0]
    assert torch.equal(copies[0][0].weight, model[0].weight)
