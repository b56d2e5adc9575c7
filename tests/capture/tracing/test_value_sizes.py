"""A size that values decide is never taken for a rule of the batch, even if it was one in every trial."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cutting import assert_equal, play
from torch import nn
from torch.nn import functional as F

from nfold.capture.batches.example import Example
from nfold.capture.capture import capture
from nfold.errors import ProgramError

ORDINARY = 50
"""Batches before this one have only positive values and the marks 0 .. 3: whatever is selected is all of it."""

Between = Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Net(nn.Module):
    """Computes something of a hidden layer, of the rows and of marks 0 .. 3, between two layers."""

    def __init__(self, between: Between) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 4), Selecting(), nn.Linear(4, 3)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        marks = x[:, 0].long()
        return self.last(self.between(self, self.first(x), x, marks))


class Selecting(nn.Module):
    """Stays whole, and keeps some rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: int((x > 0).all(1).sum())] if x.sum() > -1e9 else x


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x[(x > 0).all(1)].detach().clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


def selected(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return h * torch.masked_select(x, x > 0).shape[0]


def indexed(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return h * x[x[:, 1] > 0].size(0)


def made(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return h * torch.zeros(marks.max() + 1).numel()


def sliced(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return h * x[:, : marks.max()].shape[1]


def split(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    count = (x > 0).all(1).sum().item()
    return h * x.split([count, x.shape[0] - count])[0].shape[0]


def split_by_tensor(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return h * torch.tensor_split(x, marks.amax()[None], 1)[0].shape[1]


def sparse(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return h * x.relu().to_sparse().values().shape[0]


def in_a_module(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return h * net.inner(x).shape[0]


def in_a_function(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return h * Kept.apply(x).shape[0]


def listed(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return h * torch.arange(4)[: int(marks.float().max().tolist())].shape[0]


def of_parts(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return sum(h * len(part) for part in x.split([(x > 0).all(1).sum().item(), (x <= 0).any(1).sum().item()]))


PROGRAMS = [
    *(selected, indexed, made, sliced, split, split_by_tensor),
    *(sparse, in_a_module, in_a_function, listed, of_parts),
]


def batch(size: int, which: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(which)
    x = torch.rand(size, 4, generator=draw, dtype=torch.float64) + 0.1
    if which < ORDINARY:
        x[0, 0], x[1:, 0] = 3.5, torch.arange(size - 1) % 3 + 0.5
    else:
        x[:, 0], x[0, 1] = 1.5, -1.0
    return x, torch.arange(size) % 3


@pytest.mark.parametrize("between", PROGRAMS, ids=lambda between: between.__name__)
def test_a_size_that_values_decide_is_computed_from_the_values(between: Between) -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return Net(between).double()

    net = model()
    captured = capture(net, F.cross_entropy, Example(make=batch), rebuild=model)
    eager, later = model(), batch(6, ORDINARY)
    loss = F.cross_entropy(eager(later[0]), later[1])
    loss.backward()
    expected = {"loss": loss.detach()} | {name: each.grad for name, each in eager.named_parameters()}
    names = [operator.name for operator in captured.graph.operators]
    assert_equal(play(captured, [names], later), expected)
    assert_equal(play(captured, [[name] for name in names], later), expected)


def test_what_comes_in_another_shape_than_in_trials_is_never_sent() -> None:
    def chosen(net: Any, h: torch.Tensor, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
        return torch.cat([h[x[:, 1] > 0], h[x[:, 1] <= 0][:0]])

    captured = capture(Net(chosen).double(), lambda outputs, _: outputs.mean(), Example(make=batch))
    spec = captured.spec(captured.graph.operator("last").inputs[0])
    spec.check(torch.zeros(6, 4, dtype=torch.float64), 6)
    with pytest.raises(ProgramError, match=r"float64\[5, 4\] for a chunk of 6 samples, .* float64\[6, 4\]"):
        spec.check(torch.zeros(5, 4, dtype=torch.float64), 6)
