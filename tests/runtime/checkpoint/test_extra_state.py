"""Modules that keep something beside tensors: a run that goes on has it back, or the user is told."""

import itertools

import pytest
import torch
from harness import graph_of, placed_plan, play
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import spectral_norm
from torch.utils.data import TensorDataset

from nfold.core.placement import Placement
from nfold.errors import ProgramError
from nfold.planning.reductions.buckets import buckets_of
from nfold.program import Program
from nfold.runtime.checkpoint.extra_state import ExtraStates, plain_extras


class Warming(nn.Module):
    """Lets more through the more often it was called; what it counts is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.seen = 0, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen = [*self.seen[-1:], self.calls]
        return x * min(1.0, 0.1 * self.calls)


class Saying(Warming):
    def get_extra_state(self):
        return {"calls": self.calls, "seen": self.seen}

    def set_extra_state(self, state):
        self.calls, self.seen = state["calls"], state["seen"]


class SayingTensor(Warming):
    def get_extra_state(self):
        return torch.tensor([self.calls])

    def set_extra_state(self, state):
        self.calls = int(state)


class Drawing(nn.Module):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(5, generator=self.generator, dtype=x.dtype)


class KeptDrawing(Drawing):
    def get_extra_state(self):
        return self.generator.get_state()

    def set_extra_state(self, state):
        self.generator.set_state(state)


class Reseeding(Drawing):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.generator.manual_seed(3)
        return super().forward(x)


class DrawingByHelper(nn.Module):
    """Draws where no module does."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = [Drawing().forward]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.steps[0](x)


class Cycling(nn.Module):
    """Takes its factors from an iterator."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = itertools.cycle([1.0, 1.0, 1.0, 2.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * next(self.factors)


class Late(nn.Module):
    """Is another after many calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x if self.calls < 1000 else 2 * x


class Remembering(nn.Module):
    """Lets the batch before come in."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(5).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, self.last = x + self.last, x.detach().mean(0)
        return y


class Showing(nn.Module):
    """Keeps what it computed for whoever wants to look."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shown = x.detach()
        return x


class Summing(nn.Module):
    """Adds up what nothing is computed with."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(5).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total = self.total + x.detach().mean(0)
        return x


class Centring(nn.Module):
    """Has a buffer that moves, and shows what it has computed from it; a checkpoint holds the buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(5).double())
        self.shown = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shown = x - self.centre
        with torch.no_grad():
            self.centre.lerp_(x.mean(0), 0.1)
        return self.shown


class Lagging(Centring):
    """Lets what it has shown of the batch before come in."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.shown
        return super().forward(x) if before is None else super().forward(x) + before.detach().mean(0)


def spectral() -> nn.Module:
    return spectral_norm(nn.Linear(5, 5))


def net(middle) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), middle, nn.Linear(5, 3)).double()


def of(middle) -> Program:
    def rows():
        draw = torch.Generator().manual_seed(5)
        return TensorDataset(torch.randn(40, 6, generator=draw, dtype=torch.float64), torch.arange(40) % 3)

    return Program(
        model=lambda: net(middle()),
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        train_data=rows,
        batch_size=10,
        epochs=100,
        seed=3,
    )


def on_last(program, graph):
    """One chunk: the first operator on rank 0, all others on rank 1."""
    owners = {operator.name: (min(1, index),) for index, operator in enumerate(graph.operators)}
    placement = Placement(num_chunks=1, world_size=2, owners=owners)
    return placed_plan(program, owners, 2, buckets_of(graph, placement, "ring", 4096))


@pytest.mark.parametrize("middle", [Saying, SayingTensor, KeptDrawing, spectral])
def test_a_run_that_goes_on_equals_one_that_never_stopped(middle):
    program = of(middle)
    graph = graph_of(program)
    plan = on_last(program, graph)
    whole = play(program, graph, plan, 6)
    begun = play(program, graph, plan, 3)
    resumed = play(program, graph, plan, 6, checkpoint=begun.checkpoint)
    assert resumed.losses == whole.losses[3:]
    assert all(torch.equal(value, whole.state[name]) for name, value in resumed.state.items())
    assert resumed.checkpoint == whole.checkpoint


@pytest.mark.parametrize(
    ("middle", "told"),
    [
        (Warming, "forward changes 1.calls, 1.seen, which no checkpoint holds"),
        (Drawing, "forward draws from 1.generator, a generator of its own"),
        (DrawingByHelper, "forward draws from 1.steps[0].generator, a generator of its own"),
        (Cycling, "forward changes 1.factors, which"),
        (Late, "forward changes 1.calls, which"),
        (Remembering, "forward changes 1.last, which"),
        (Lagging, "forward changes 1.shown, which"),
    ],
)
def test_what_a_run_that_goes_on_would_not_have_is_refused(middle, told):
    unkept = graph_of(of(middle)).unkept
    assert unkept.startswith(told)
    assert "--checkpoint-every 0" in unkept


@pytest.mark.parametrize("middle", [Saying, KeptDrawing, Reseeding, Showing, Centring, Summing, spectral, nn.Dropout])
def test_what_is_kept_or_changes_nothing_is_not(middle):
    graph = graph_of(of(middle))
    assert graph.unkept == ""
    assert any("which no checkpoint holds" in note for note in graph.notes) == (middle is Summing)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": torch.zeros(2)}, "a dict with Tensor"),
        ((1, 2), "a tuple"),
        ({1: "a"}, "a dict"),
        (float("nan"), "a float"),
        ({"a": object()}, "a dict with object"),
        ({1, 2}, "a set"),
    ],
)
def test_what_no_checkpoint_can_hold_is_refused_with_its_module(value, told):
    class Odd(Saying):
        def get_extra_state(self):
            return value

    with pytest.raises(ProgramError, match=rf"get_extra_state\(\) of 1 returns {told}, which a checkpoint cannot hold"):
        ExtraStates(net(Odd()))


def test_what_json_has_is_kept_as_it_is():
    model = net(Saying())
    extras = ExtraStates(model)
    assert extras.changed() == {}
    model[1].calls = 7
    assert extras.changed() == {"1._extra_state": {"calls": 7, "seen": []}} == plain_extras(model.state_dict())
