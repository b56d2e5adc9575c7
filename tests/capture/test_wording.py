"""What keeps a program whole is told once, in its own words and with its own line."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nfold.capture.capture import capture
from nfold.capture.example import Example

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch would have its users leave it

    @torch.jit.script
    def scale(x: torch.Tensor, factor: int):
        return torch.sqrt(torch.tensor(x.size(-1) * factor, dtype=torch.float))


def made(size, which):
    generator = torch.Generator().manual_seed(which)
    return torch.randn(size, 6, generator=generator), torch.randn(size, 1, generator=generator)


def graph_of(model, loss=F.mse_loss):
    torch.manual_seed(0)
    return capture(model(), loss, Example(make=made, largest=16)).graph


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 1)


class Scaled(Net):
    """Attention of transformers is scaled so."""

    def forward(self, x):
        hidden = self.first(x)
        return self.last(hidden / scale(hidden, 2))


class Physics(Net):
    def forward(self, x):
        x = x.requires_grad_(True)
        value = self.last(self.first(x).tanh())
        slope = torch.autograd.grad(value.sum(), x, create_graph=True)[0]
        return value + slope[:, :1]


def physical(outputs, targets):
    value, x = outputs
    slope = torch.autograd.grad(value.sum(), x, create_graph=True)[0]
    return F.mse_loss(value, targets) + slope.square().mean()


class Given(Net):
    def forward(self, x):
        x = x.requires_grad_(True)
        return self.last(self.first(x).tanh()), x


def test_scripted_functions_that_make_tensors_are_cut_and_nothing_is_told():
    graph = graph_of(Scaled)
    assert len(graph.operators) > 4
    assert graph.notes == ()


class Unexported(Net):
    """What export cannot follow, since values decide."""

    def forward(self, x):
        hidden = self.first(x)
        hidden = hidden / scale(hidden, 2)
        if float(hidden.detach().sum()) > 1e9:
            hidden = hidden * 2
        return self.last(hidden)


def test_a_scripted_function_that_stays_whole_is_told_as_that():
    (note,) = [note for note in graph_of(Unexported).notes if "scale(" in note]
    assert "calls a function of torch.jit.script, into which nobody can look" in note
    assert note.endswith("Without @torch.jit.script it would be followed")
    assert "Standin" not in note


@pytest.mark.parametrize(("model", "loss"), [(Physics, F.mse_loss), (Given, physical)])
def test_a_program_that_takes_a_gradient_is_told_in_one_sentence_with_its_line(model, loss):
    (note,) = graph_of(model, loss).notes
    assert note.startswith(f"the program takes a gradient itself ({__file__}, line ")
    assert "slope = torch.autograd.grad(value.sum(), x, create_graph=True)[0])" in note
    assert note.endswith("the whole model is one operator, so only its batch can be spread over ranks")
