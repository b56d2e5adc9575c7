"""What is noted of a model's modules in one pass, and which of them a model that does not equal itself is told with."""

import os

import pytest
import torch
from torch import nn

from nfold.capture import capture
from nfold.capture.batches.example import Example
from nfold.capture.computing.random import seed_all
from nfold.capture.program.module_outputs import MOST_ELEMENTS, outputs_of
from nfold.core.outputs import first_difference


class Noise(nn.Module):
    """Draws from a generator that nobody seeds."""

    def forward(self, inputs):
        generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(4)))
        return inputs + torch.rand(inputs.shape, generator=generator)


class Two(nn.Module):
    """Returns several things."""

    def forward(self, inputs):
        return {"x": inputs, "n": torch.tensor(3)}, None


def batch(size=4):
    return torch.linspace(-1, 1, size * 6).reshape(size, 6), torch.zeros(size, dtype=torch.long)


def net(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), *layers, nn.Linear(8, 3))


def called(model, size=4):
    seed_all(0)
    return outputs_of(model, nn.functional.cross_entropy, batch(size))


def test_every_module_is_noted_in_the_order_of_its_calls_and_no_hook_is_left():
    model = net(nn.Dropout(0.5))
    found = called(model)
    names = ["0 (Linear)", "1 (ReLU)", "2 (Dropout)", "3 (Linear)", "model (Sequential)", "loss"]
    assert [each.module for each in found] == names
    assert found[0].norm == pytest.approx(model[0](batch()[0]).norm().item())
    assert not any(module._forward_hooks for module in model.modules())
    assert first_difference(found, called(model)) == "", "dropout draws from torch's generator"


def test_a_module_that_draws_elsewhere_is_the_one_that_differs():
    model = net(nn.Dropout(0.5), Noise())
    assert first_difference(called(model), called(model)).startswith("the output of the 3 (Noise) differs first")


def test_large_outputs_odd_ones_and_those_that_are_no_numbers():
    large = outputs_of(nn.Identity(), lambda out, _: out.sum(), (torch.ones(3, MOST_ELEMENTS), None))
    assert large[0].norm == MOST_ELEMENTS**0.5
    odd = outputs_of(Two(), lambda out, _: out[0]["x"].mean(), (torch.tensor([1.0, torch.nan, torch.inf]), None))
    assert (odd[0].norm, abs(odd[0].projection)) == (1.0, 1.0)
    half = outputs_of(nn.Identity(), lambda out, _: out.sum(), (torch.ones(2, dtype=torch.bfloat16), None))
    assert [each.is_coarse for each in half] == [True, True]


def test_a_model_that_does_not_equal_itself_is_one_operator_and_the_module_is_named():
    example = Example(make=lambda size, which: (batch(size + which)[0][:size], batch(size)[1]))
    captured = capture(net(Noise()), nn.functional.cross_entropy, example)
    assert captured.graph.capture == "opaque"
    assert "the output of the 2 (Noise) differs first" in told_of(captured)


def test_data_that_are_drawn_anew_each_time_are_not_the_model_s_fault():
    own = torch.Generator().manual_seed(1)
    example = Example(make=lambda size, which: (torch.rand(size, 6, generator=own), batch(size)[1]))
    assert "its data set draws other samples each time" in told_of(capture(net(), nn.functional.cross_entropy, example))


def told_of(captured):
    return next(note for note in captured.graph.notes if note.startswith("the model does not equal itself"))
