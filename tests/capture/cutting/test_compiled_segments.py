"""A cut model makes the numbers of the uncut module, wherever it is cut."""

import random
from functools import cache

import pytest
import torch
from cutting import assert_equal, cut_at_random, play
from zoo import ZOO

from nfold.capture.capture import capture, recapture
from nfold.capture.cutting.captured import Captured
from nfold.core import codec
from nfold.core.graph import ModelGraph

RANDOM = {"plain", "gpt", "lstm"}


@cache
def captured_from_zoo(name: str) -> Captured:
    """Capture once for all tests that leave the weights as they are."""
    return capture(ZOO[name].model(), ZOO[name].loss, ZOO[name].example())


@pytest.mark.parametrize("name", ZOO)
def test_cut_anywhere_equals_the_module(name: str) -> None:
    net, captured = ZOO[name], captured_from_zoo(name)
    names = [operator.name for operator in captured.graph.operators]
    batch = net.example().batch(4, 3)
    whole = play(captured, [names], batch)
    assert captured.graph.capture == "fx"
    generator = random.Random(name)
    for _ in range(4):
        assert_equal(play(captured, cut_at_random(names, generator), batch), whole)
    if name not in RANDOM:
        model = net.model()
        loss = net.loss(model(batch[0]), batch[1])
        loss.backward()
        assert_equal(whole, {"loss": loss.detach()} | {n: p.grad for n, p in model.named_parameters()})


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_draws_depend_on_the_cell(name: str) -> None:
    net, captured = ZOO[name], captured_from_zoo(name)
    names = [[operator.name for operator in captured.graph.operators]]
    batch = net.example().batch(4, 3)
    assert sum(operator.num_random for operator in captured.graph.operators) > 0
    assert_equal(play(captured, names, batch, chunk=1), play(captured, names, batch, chunk=1), 0.0)
    assert play(captured, names, batch, chunk=0)["loss"] != play(captured, names, batch, chunk=1)["loss"]


@pytest.mark.parametrize("name", ZOO)
def test_captures_are_deterministic_and_do_not_disturb(name: str) -> None:
    net = ZOO[name]
    model = net.model()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    first = capture(model, net.loss, net.example()).graph
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(generator, torch.get_rng_state())
    assert recapture(net.model(1), net.loss, net.example(), first).graph == first
    assert codec.loads(ModelGraph, codec.dumps(first)) == first


@pytest.mark.parametrize("name", ZOO)
def test_shapes_are_known_for_every_chunk_size(name: str) -> None:
    net, captured = ZOO[name], captured_from_zoo(name)
    batch = dict(zip(("input", "target"), net.example().batch(5), strict=True))
    draws = _Unseeded()
    for operator in captured.graph.operators:
        segment = captured.segment((operator.name,), operator.inputs, operator.outputs, draws)
        made = dict(zip(operator.outputs, segment(*(batch[name] for name in operator.inputs)), strict=True))
        for tensor, value in made.items():
            assert (captured.spec(tensor).at(5), captured.spec(tensor).dtype) == (tuple(value.shape), value.dtype)
            noun = next(noun for noun in captured.graph.tensors if noun.name == tensor)
            assert noun.bytes_per_sample * 5 + noun.fixed_bytes == value.nbytes
        batch |= made


class _Unseeded:
    def seed(self, draw: int) -> None:
        """Draw on."""

    def seed_everything(self, draw: int) -> None:
        """Draw on."""


def test_segments_use_the_weights_as_they_are_now() -> None:
    net = ZOO["tied"]
    captured = capture(net.model(), net.loss, net.example())
    names, batch = [[operator.name for operator in captured.graph.operators]], net.example().batch(4)
    before = play(captured, names, batch)["loss"]
    with torch.no_grad():
        for parameter in captured.model.parameters():
            parameter.mul_(0.5)
    assert play(captured, names, batch)["loss"] != before


def test_graph_tells_what_is_true_of_the_program() -> None:
    graph = captured_from_zoo("dead").graph
    parameters = {parameter.name: parameter for parameter in graph.parameters}
    assert not parameters["unused.weight"].users
    assert not any(parameters[f"{name}.weight"].has_gradient for name in ("unused", "dead", "b"))
    assert parameters["a.weight"].users == ("a",)
    region = graph.operator("b")
    assert "sigmoid" in region.kind
    assert not next(tensor for tensor in graph.tensors if tensor.producer == "b").requires_grad


def test_tied_weights_are_one_parameter_with_several_users() -> None:
    graph = captured_from_zoo("gpt").graph
    (tied,) = [parameter for parameter in graph.parameters if len(parameter.users) > 1]
    assert tied.name == "wte.weight"
    assert tied.users == ("wte", "head")


def test_batch_norm_calls_are_counted() -> None:
    graph = captured_from_zoo("twice").graph
    (statistic,) = graph.statistics
    assert (statistic.module, statistic.num_calls, statistic.num_channels) == ("block.1", 2, 12)
    assert [operator.statistics for operator in graph.operators if operator.statistics] == [("block.1",)] * 2
