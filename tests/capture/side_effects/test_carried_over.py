"""Followers of the weights, which begin as a copy of them: at the first weights nothing shows that they move."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from zoo import Net, rows

from nfold.capture.capture import capture
from nfold.core.graph import ModelGraph
from nfold.errors import ProgramError

OUTSIDE = nn.Linear(12, 4).double()


class Following(nn.Module):
    """Returns what a student and its follower make of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(12, 4)
        self.keep(self.student.weight.detach().clone().double())

    def keep(self, weight: torch.Tensor) -> None:
        self.kept = [weight]

    def follow(self) -> torch.Tensor:
        return self.kept[0].lerp_(self.student.weight, 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            shown = F.linear(x, self.follow())
        return self.student(x) - shown


class InBuffer(Following):
    def keep(self, weight: torch.Tensor) -> None:
        self.register_buffer("kept", weight)

    def follow(self) -> torch.Tensor:
        return self.kept.lerp_(self.student.weight, 0.1)


class NewBuffer(InBuffer):
    def follow(self) -> torch.Tensor:
        self.kept = torch.lerp(self.kept, self.student.weight.detach(), 0.1)
        return self.kept


class Unregistered(Following):
    """Hides its teacher from state_dict() in an object of its own."""

    def keep(self, weight: torch.Tensor) -> None:
        self.kept = SimpleNamespace(teacher=copy.deepcopy(self.student).double())

    def follow(self) -> torch.Tensor:
        teacher = self.kept.teacher.weight
        teacher.data.mul_(0.9).add_(self.student.weight.data, alpha=0.1)
        return teacher


class Secret(Unregistered):
    """Hides it where nobody looks."""

    def keep(self, weight: torch.Tensor) -> None:
        super().keep(weight)
        self.kept = [[[[self.kept.teacher]]]]

    def follow(self) -> torch.Tensor:
        teacher = self.kept[0][0][0][0].weight
        teacher.data.mul_(0.9).add_(self.student.weight.data, alpha=0.1)
        return teacher


class FirstBatch(nn.Linear):
    """Centres by the first batch of all."""

    mean = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = x.mean(0) if self.mean is None else self.mean
        return super().forward(x - self.mean)


class Carrying(nn.Module):
    """Carries its state into the next batch, if that is as large."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.state = nn.RNNCell(12, 4), torch.zeros(1, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.state if len(self.state) == len(x) else x.new_zeros(len(x), 4)
        after = self.cell(x, before)
        self.state = after.detach()
        return after


class Cached(nn.Linear):
    """Makes a table at its first call, and keeps it."""

    table = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table = torch.arange(12.0, dtype=x.dtype) if self.table is None else self.table
        return super().forward(x * self.table)


class OfClosure(Following):
    def follow(self) -> torch.Tensor:
        OUTSIDE.weight.data.mul_(0.9).add_(self.student.weight.data, alpha=0.1)
        return OUTSIDE.weight


class Adapting:
    """A loss that holds a module and moves it past its versions."""

    def __init__(self) -> None:
        self.centre = nn.Linear(1, 4).double().requires_grad_(False)

    def __call__(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        self.centre.bias.data.lerp_(outputs.detach().mean(0), 0.1)
        return F.mse_loss(outputs, self.centre.bias.expand_as(outputs))


class Evaluated(nn.Linear):
    """Counts its calls in eval mode, and may compute with that."""

    def __init__(self, uses: int) -> None:
        super().__init__(12, 4)
        self.uses = uses
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            self.calls += 1
        return super().forward(x) * (1 + self.uses * self.calls)


def graph_of(
    build: Callable[[], nn.Module], loss: Any = lambda outputs, _: outputs.pow(2).mean(), *, evaluates: bool = False
) -> ModelGraph:
    net = Net(build, rows, loss=loss)
    return capture(net.model(), net.loss, net.example(), rebuild=net.model, evaluates=evaluates).graph


@pytest.mark.parametrize(
    ("build", "told", "is_kept"),
    [
        (Following, "forward changes kept,", False),
        (InBuffer, "forward changes kept,", True),
        (NewBuffer, "forward changes kept,", True),
        (Unregistered, "forward changes kept,", False),
        (Secret, "something that nfold cannot see is carried over", False),
        (lambda: FirstBatch(12, 4), "forward changes mean,", False),
        (Carrying, "forward changes state,", False),
    ],
)
def test_a_pass_that_follows_from_those_before_has_its_batch_whole(
    build: Callable[[], nn.Module], told: str, is_kept: bool
) -> None:
    graph = graph_of(build)
    assert told in graph.indivisible
    assert ("which no checkpoint holds" in graph.unkept) != is_kept
    assert ("buffer that has its shape when model() has built it" in graph.unkept) != is_kept


@pytest.mark.parametrize(
    "build",
    [
        lambda: Cached(12, 4),
        lambda: nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)),
        lambda: prune.l1_unstructured(nn.Linear(12, 4), "weight", 0.3),
    ],
    ids=["cached", "batch norm", "pruned"],
)
def test_what_is_made_anew_or_once_is_not_carried_over(build: Callable[[], nn.Module]) -> None:
    assert graph_of(build).indivisible == ""


def test_a_follower_outside_of_the_model_is_refused_though_it_begins_as_a_copy() -> None:
    def build() -> nn.Module:
        model = OfClosure().double()
        OUTSIDE.load_state_dict(model.student.state_dict())
        return model

    with pytest.raises(ProgramError, match="forward changes OUTSIDE whenever it is called"):
        graph_of(build)


def test_a_module_that_a_loss_moves_is_refused() -> None:
    with pytest.raises(ProgramError, match="the loss changes centre whenever it is called"):
        graph_of(lambda: nn.Linear(12, 4), Adapting())


@pytest.mark.parametrize(("uses", "evaluates"), [(1, True), (1, False), (0, True)])
def test_what_evaluations_leave_to_training_keeps_the_batch_whole(uses: int, evaluates: bool) -> None:
    graph = graph_of(lambda: Evaluated(uses), evaluates=evaluates)
    assert graph.indivisible.startswith("a forward in eval mode changes") == (uses == 1 and evaluates)


class Counted(nn.Module):
    """Counts its evaluations and trains by their number, in an attribute or in a buffer, which is saved."""

    def __init__(self, saved: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(12, 4)
        if saved:
            self.register_buffer("times", torch.zeros(()))
        else:
            self.times = torch.zeros(())

    def train(self, mode: bool = True) -> "Counted":
        if not mode:
            self.times = self.times + 1
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * (1 + self.times)


@pytest.mark.parametrize("saved", [True, False])
def test_what_evaluations_leave_to_training_is_not_gone_on_from_where_nothing_saves_it(saved: bool) -> None:
    assert (
        "changes times, which no checkpoint holds" in graph_of(lambda: Counted(saved), evaluates=True).unkept
    ) != saved
