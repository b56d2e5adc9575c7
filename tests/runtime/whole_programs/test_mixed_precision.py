"""Mixed precision: the same casts at the same places, wherever the cells are."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from harness import difference, graph_of, make_plan, placed_plan, plain_loop, play, random_owners
from nets import NETS, images, sgd
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from nfold.capture.program.autocast import under_autocast
from nfold.core.placement import Placement
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.scheduling.schedule_compiler import compile_schedule
from nfold.program import Program

STEPS, CHUNKS = 4, 4
WAYS = [("single", 1, 0), ("ring", 2, 0), ("ps", 3, 1)]
CLOSE = 1e-5
"""Weights are float32; a cast at another place would show at 1e-3."""


def single_precision():
    inputs, labels = images().tensors
    return TensorDataset(inputs.float(), labels)


class Twice(nn.Module):
    """A weight used twice, an activation used twice, and one that stays in single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.head = nn.Linear(128, 12), nn.Linear(12, 12), nn.Linear(12, 4)
        self.norm = nn.LayerNorm(12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x.flatten(1)))
        hidden = self.norm(torch.tanh(self.again(hidden)) + torch.sigmoid(self.again(hidden)))
        return self.head(hidden)


class Inside(nn.Module):
    """Autocast where a user would write it, with its cache; its input is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right, self.head = (
            nn.Linear(*sides) for sides in ((128, 12), *[(12, 12)] * 2, (12, 4))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x.flatten(1)))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.left(hidden) * self.right(hidden)
        return self.head(torch.tanh(hidden.float()))


MODELS = {**{name: NETS[name] for name in ("plain", "residual", "tied")}, "twice": Twice}


def program(model, autocast: str | None = "bfloat16") -> Program:
    return Program(
        model=model, loss=F.cross_entropy, optimizer=sgd, train_data=single_precision, batch_size=16, seed=3,
        autocast=autocast,
    )  # fmt: skip


def reference(mine: Program) -> dict[str, torch.Tensor]:
    """One device, a plain loop, `with torch.autocast` around forward and loss."""

    def loss(outputs, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            return mine.loss(outputs, targets)

    def model():
        made = mine.model()
        inner = made.forward

        def forward(x):
            with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
                return inner(x)

        made.forward = forward
        return made

    return plain_loop(replace(mine, model=model, loss=loss, autocast=None), STEPS, CHUNKS).state_dict()


@pytest.fixture(scope="module")
def graphs():
    return cache(lambda name: graph_of(under_autocast(program(MODELS[name]))))


@pytest.fixture(scope="module")
def usual_graphs():
    """Without autocast."""
    return cache(lambda name: graph_of(program(MODELS[name], None)))


@pytest.fixture(scope="module")
def references():
    return cache(lambda name: reference(program(MODELS[name])))


@pytest.mark.parametrize("name", MODELS)
def test_the_type_shows(references, name):
    single = plain_loop(program(MODELS[name], None), STEPS, CHUNKS).state_dict()
    assert difference(references(name), single) > 10 * CLOSE


@pytest.mark.parametrize("name", MODELS)
def test_it_is_cut_into_as_many_operators_as_without(graphs, usual_graphs, name):
    assert len(graphs(name).operators) == len(usual_graphs(name).operators) > 3


@pytest.mark.parametrize("name", MODELS)
def test_activations_are_sent_in_their_own_type(graphs, usual_graphs, name):
    usual = {tensor.name: tensor.bytes_per_sample for tensor in usual_graphs(name).tensors}
    shares = [t.bytes_per_sample / usual[t.name] for t in graphs(name).tensors if t.bytes_per_sample]
    assert set(shares) == {0.5, 1.0}
    assert shares.count(0.5) >= 2


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("strategy", "workers", "servers"), WAYS)
def test_every_strategy_equals_one_device_under_autocast(graphs, references, name, strategy, workers, servers):
    mine = program(MODELS[name])
    plan = make_plan(mine, graphs(name), strategy, workers, servers, CHUNKS)
    played = play(under_autocast(mine), graphs(name), plan, STEPS)
    assert difference(played.state, references(name)) <= CLOSE
    assert sum(played.sent_bytes) == plan.predicted.sent_bytes_per_step


@pytest.mark.parametrize("name", MODELS)
def test_random_placements_equal_one_device_under_autocast(graphs, references, name):
    mine, graph = program(MODELS[name]), graphs(name)
    owners = random_owners(graph, CHUNKS, 4, seed=2)
    placement = Placement(num_chunks=CHUNKS, world_size=4, owners=owners)
    plan = placed_plan(mine, owners, 4, buckets_of(graph, placement, "ring", 2048))
    played = play(under_autocast(mine), graph, plan, STEPS)
    assert difference(played.state, references(name)) <= CLOSE
    schedule = compile_schedule(graph, placement, plan.reductions, batch_size=mine.batch_size)
    assert sum(played.sent_bytes) == schedule.sent_bytes > 0


def test_a_block_in_the_users_forward_stays_whole_and_crosses_in_its_type():
    mine = program(Inside, None)
    graph = graph_of(mine)
    owners = {op.name: (index % 3,) * CHUNKS for index, op in enumerate(graph.operators)}
    placement = Placement(num_chunks=CHUNKS, world_size=3, owners=owners)
    plan = placed_plan(mine, owners, 3, buckets_of(graph, placement, "ring", 2048))
    assert difference(play(mine, graph, plan, STEPS).state, plain_loop(mine, STEPS, CHUNKS).state_dict()) <= CLOSE
    assert 12 * 2 in {tensor.bytes_per_sample for tensor in graph.tensors}, "twelve numbers of two bytes"


class Refused(nn.Module):
    """Looks at a value, which no tracer follows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(128, 12), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x.flatten(1))
        try:
            if hidden.sum() > 1e9:
                hidden = hidden * 2
        finally:
            del x
        return self.head(torch.tanh(hidden))


@pytest.mark.parametrize("strategy", ["single", "ring"])
def test_a_model_that_cannot_be_looked_into_computes_under_autocast_too(strategy):
    mine = program(Refused)
    graph = graph_of(under_autocast(mine))
    assert graph.capture == "opaque"
    plan = make_plan(mine, graph, strategy, 1 + (strategy == "ring"), 0, CHUNKS)
    assert difference(play(under_autocast(mine), graph, plan, STEPS).state, reference(mine)) <= CLOSE


def test_a_loss_that_computes_coarsely_is_no_worse_a_mean_for_it():
    def loss(outputs, targets):
        scores = (outputs @ torch.eye(4)).float()
        return F.cross_entropy(scores, targets) + (scores @ torch.eye(4)).float().square().mean()

    mine = replace(program(MODELS["plain"]), loss=loss)
    graph = graph_of(under_autocast(mine))
    played = play(under_autocast(mine), graph, make_plan(mine, graph, "ring", 2, 0, CHUNKS), STEPS)
    assert difference(played.state, reference(mine)) <= CLOSE
