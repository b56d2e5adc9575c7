"""Optimizers and schedules of all kinds: as on one device under every strategy, and as without a stop after one."""

import pytest
import torch
from harness import difference, graph_of, make_plan, plain_loop, play, with_more
from optimizers import OPTIMIZERS, REFUSED, SCHEDULES, UNKEPT
from torch import nn
from torch.optim import SGD
from torch.utils.data import TensorDataset

from nfold.errors import PlanError, ProgramError
from nfold.program import Program

STEPS, HALF, CHUNKS = 8, 4, 4
WAYS = (("pipeline", 2, 0), ("ps", 2, 2), ("ring", 2, 0))


class Sides(nn.Module):
    """Has weights with sides of one, one without a dimension, and one with as many elements as sides."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 1)
        self.gain, self.scale = nn.Parameter(torch.linspace(-1, 1, 6).reshape(6, 1)), nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        y = torch.tanh(self.norm(self.first(x)))
        return (self.last(y) + y @ self.gain) * self.scale


def program(optimizer, scheduler=None):
    def model():
        torch.manual_seed(0)
        return Sides().double()

    def rows():
        x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return TensorDataset(x, x[:, :1].sin())

    loss = nn.functional.mse_loss
    return Program(model=model, loss=loss, optimizer=optimizer, scheduler=scheduler, train_data=rows, batch_size=16)


def momentum(params):
    return SGD(params, lr=0.1, momentum=0.9)


PROGRAMS = {name: program(optimizer) for name, optimizer in OPTIMIZERS.items()}
PROGRAMS |= {name: program(momentum, schedule) for name, schedule in SCHEDULES.items()}


def plans_of(mine, graph):
    """Plans under which a program may be trained; all at once is always one."""
    for way in WAYS:
        try:
            yield make_plan(mine, graph, *way, CHUNKS)
        except PlanError as error:
            assert "the optimizer must see all parameters at once" in str(error)  # noqa: PT017


ALWAYS = ("Adafactor", "Muon and AdamW", "ScheduleFree", "Looking", "Accumulating", "chained", "momentum")


@pytest.mark.parametrize("name", with_more(ALWAYS, PROGRAMS))
def test_all_is_as_without_a_stop_also_under_another_plan(name):
    mine = PROGRAMS[name]
    graph = graph_of(mine)
    assert (graph.unkept, graph.notes) == ("", ())
    expected = plain_loop(mine, STEPS, CHUNKS).state_dict()
    plan, *others = plans_of(mine, graph)
    through, half = play(mine, graph, plan, STEPS), play(mine, graph, plan, HALF).checkpoint
    assert play(mine, graph, plan, STEPS, checkpoint=half).checkpoint == through.checkpoint
    assert difference(through.state, expected) <= 1e-9
    for other in others:
        assert difference(play(mine, graph, other, STEPS, checkpoint=half).state, expected) <= 1e-9


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_step_by_gradients_alone_is_refused(name):
    optimizer, words = REFUSED[name]
    with pytest.raises(ProgramError, match=words):
        graph_of(program(optimizer))


@pytest.mark.parametrize("name", with_more(tuple(UNKEPT)[:2], UNKEPT))
def test_what_would_begin_anew_is_not_kept(name):
    optimizer, words = UNKEPT[name]
    assert words in graph_of(program(optimizer)).unkept
