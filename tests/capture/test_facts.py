"""What is true of a program whatever captures it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zoo import CLASSES, ZOO, Net, rows

from nfold.capture.capture import capture
from nfold.capture.optimizers import update_scope
from nfold.core.graph import ModelGraph
from nfold.errors import ProgramError


def graph_of(net: Net) -> ModelGraph:
    return capture(net.model(), net.loss, net.example()).graph


def linear() -> nn.Module:
    return nn.Linear(12, CLASSES)


def contrast(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    similar = outputs @ outputs.t()
    return F.cross_entropy(similar, torch.arange(len(outputs)))


class MeanOverBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y - y.mean(0)


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_may_be_cut_into_chunks(name: str) -> None:
    assert graph_of(ZOO[name]).indivisible == ""


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, target: F.cross_entropy(outputs, target, reduction="sum"),
        lambda outputs, target: F.cross_entropy(outputs, target, weight=torch.arange(1.0, CLASSES + 1).double()),
        lambda outputs, target: F.cross_entropy(outputs, target, ignore_index=0),
        contrast,
    ],
    ids=["sum", "weights", "ignored", "contrast"],
)
def test_a_loss_that_is_no_mean(loss: Callable[[Any, Any], torch.Tensor]) -> None:
    assert "not a mean over samples" in graph_of(Net(linear, rows, loss=loss)).indivisible


def test_outputs_that_depend_on_other_samples() -> None:
    assert "other samples" in graph_of(Net(MeanOverBatch, rows)).indivisible


def test_batch_norm_without_running_statistics_is_excused() -> None:
    net = Net(lambda: nn.Sequential(nn.BatchNorm1d(12, track_running_stats=False), linear()), rows)
    graph = graph_of(net)
    assert (graph.indivisible, graph.statistics) == ("", ())


def test_frozen_batch_norm_has_no_statistics() -> None:
    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> "Frozen":
            super().train(mode)
            self[0].eval()
            return self

    graph = graph_of(Net(lambda: Frozen(nn.BatchNorm1d(12), linear()), rows))
    assert (graph.indivisible, graph.statistics) == ("", ())


def test_a_weight_that_is_skipped_now_and_then() -> None:
    class Skipping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(12, CLASSES), nn.Linear(12, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) if len(x) > 2 else self.b(x)

    graph = graph_of(Net(Skipping, rows))
    assert not graph.static_gradients
    assert all(parameter.has_gradient for parameter in graph.parameters)


class Normalized(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad /= parameter.grad.norm()
        super().step(closure)


class Clipped(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        torch.nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 0.1)
        super().step(closure)


def decay_matrices(parameters: Any) -> torch.optim.Optimizer:
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=0.1)


@pytest.mark.parametrize(
    ("factory", "scope"),
    [
        (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True), "element"),
        (lambda parameters: torch.optim.AdamW(parameters, lr=0.01), "element"),
        (lambda parameters: torch.optim.RMSprop(parameters, lr=0.01), "element"),
        (lambda parameters: torch.optim.Adafactor(parameters, lr=0.1), "parameter"),
        (decay_matrices, "parameter"),
        (lambda parameters: Normalized(parameters, lr=0.1), "parameter"),
        (lambda parameters: Clipped(parameters, lr=0.1), "model"),
    ],
    ids=["sgd", "adamw", "rmsprop", "adafactor", "groups", "normalized", "clipped"],
)
def test_update_scope(factory: Any, scope: str) -> None:
    assert update_scope(factory, ZOO["plain"].model()) == scope


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (lambda parameters: torch.optim.SGD(parameters, lr=-1.0), "Invalid learning rate"),
        (lambda parameters: None, "must return a torch.optim.Optimizer"),
        (torch.optim.LBFGS, "closure"),
    ],
    ids=["raises", "none", "lbfgs"],
)
def test_optimizers_that_cannot_work(factory: Any, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        update_scope(factory, linear())


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (Net(lambda: nn.Linear(7, 5), rows), r"Linear.forward raised RuntimeError.*float64\[3, 12\]"),
        (Net(linear, rows, rows), r"refused outputs float64\[3, 5\] and targets float64\[3, 12\]"),
        (Net(linear, rows, loss=lambda outputs, target: outputs), "must return a scalar tensor"),
        (Net(linear, rows, loss=lambda outputs, target: outputs.detach().sum()), "does not depend on any"),
        (Net(lambda: nn.Flatten(), rows), "no trainable parameter"),
        (Net(lambda: nn.LazyLinear(3), rows), "no size yet"),
    ],
    ids=["shape", "loss", "scalar", "detached", "nothing", "lazy"],
)
def test_programs_that_cannot_work(net: Net, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        capture(net.model(), net.loss, net.example())
