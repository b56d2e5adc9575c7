"""Whatever the strategy, training gives one device's parameters."""

import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from harness import difference, graph_of, make_plan, plain_loop, play
from nets import NETS, adamw, program, sgd

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from programs.zoo import ZOO
from programs.zoo.style import CHUNKS

WAYS = [
    ("single", 1, 0),
    ("ring", 2, 0),
    ("ring", 3, 0),
    ("ps", 2, 0),
    ("ps", 3, 0),
    ("ps", 2, 1),
    ("ps", 3, 2),
    ("weighted", 3, 1),
]
STEPS = 4
"""An epoch, whose last batch is smaller, and a step of the next."""


@pytest.fixture(scope="module")
def graphs():
    return cache(lambda net: graph_of(program(net)))


@pytest.fixture(scope="module")
def plain_states():
    """What the plain loop ends with: the same for every way of spreading a program."""
    return cache(lambda net, optimizer, steps: plain_loop(program(net, optimizer), steps, 6).state_dict())


@pytest.mark.parametrize("net", [net for net in NETS if net != "dropping"])
@pytest.mark.parametrize(("strategy", "workers", "servers"), WAYS)
def test_equals_a_plain_loop_over_the_same_chunks(graphs, plain_states, net, strategy, workers, servers):
    mine = program(net)
    plan = make_plan(mine, graphs(net), strategy, workers, servers, chunks=6)
    played = play(mine, graphs(net), plan, STEPS)
    assert difference(played.state, plain_states(net, sgd, STEPS)) <= 1e-9
    assert sum(played.sent_bytes) == plan.predicted.sent_bytes_per_step


@pytest.fixture(scope="module")
def integers():
    mine = ZOO["integers"].program()
    return mine, graph_of(mine)


@pytest.mark.parametrize(("strategy", "workers", "servers"), WAYS)
def test_whole_numbers_are_exact(integers, strategy, workers, servers):
    """Every sum is exact in any order, so that no rounding excuses a difference."""
    mine, graph = integers
    played = play(mine, graph, make_plan(mine, graph, strategy, workers, servers, CHUNKS), STEPS)
    expected = plain_loop(mine, STEPS, CHUNKS).state_dict()
    assert played.state.keys() == expected.keys()
    assert all(torch.equal(played.state[name], expected[name]) for name in expected)


@pytest.fixture(scope="module")
def alone(graphs):
    """Dropout on one rank."""
    mine, graph = program("dropping"), graphs("dropping")
    return play(mine, graph, make_plan(mine, graph, "single", 1, 0, chunks=6), STEPS)


@pytest.mark.parametrize(("strategy", "workers", "servers"), WAYS[1:])
def test_dropout_is_the_same_under_every_strategy(graphs, alone, strategy, workers, servers):
    mine, graph = program("dropping"), graphs("dropping")
    spread = play(mine, graph, make_plan(mine, graph, strategy, workers, servers, chunks=6), STEPS)
    assert difference(spread.state, alone.state) <= 1e-9
    assert spread.losses == pytest.approx(alone.losses, rel=1e-9)


@pytest.mark.parametrize(("strategy", "workers", "servers"), [WAYS[0], WAYS[2], *WAYS[-2:]])
def test_equals_a_plain_loop_with_another_optimizer(graphs, plain_states, strategy, workers, servers):
    mine = program("unused", optimizer=adamw)
    played = play(
        mine, graphs("unused"), make_plan(mine, graphs("unused"), strategy, workers, servers, chunks=6), STEPS
    )
    assert difference(played.state, plain_states("unused", adamw, STEPS)) <= 1e-9
