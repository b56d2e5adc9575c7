"""Processes that stay while generations come and go: other members, strategies and numbers of ranks, one result."""

import random
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import difference, make_plan, placed_plan, plain_loop, random_owners, with_more
from members import WAIT_S, Members, processes, threads
from nets import program

from nfold.core import codec
from nfold.core.placement import Placement
from nfold.planning.reductions.buckets import buckets_of
from nfold.transport.implementations.in_memory import MemoryConnections
from nfold.transport.probing.probe import ProbedPair
from nfold.verbs.ranks.thread_ranks import threads_put_back
from nfold.verbs.ranks.toolbox import MemoryWiring

CHUNKS, MEMBERS = 4, 5
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import nets
def program():
    return nets.program("plain")
"""


@pytest.fixture
def members(tmp_path):
    """Make members that are threads, and end them."""
    made: list[Members] = []

    def make(net: str, count: int = MEMBERS) -> Members:
        made.append(Members(program(net), tmp_path, threads(program(net), count)))
        made[-1].come(*range(count))
        return made[-1]

    with threads_put_back():
        yield make
        for each in made:
            each.close()


@cache
def one_device(net: str, steps: int) -> dict[str, torch.Tensor]:
    return plain_loop(program(net), steps, CHUNKS).state_dict()


def a_plan(members: Members, world: int, kind: str, seed: int) -> Any:
    """A plan of a kind for so many ranks."""
    mine, graph = members.program, members.graph
    if kind in ("ring", "ps", "ssp"):
        return make_plan(mine, graph, kind if world > 1 else "single", world, 0, CHUNKS)
    owners = random_owners(graph, CHUNKS, world, seed)
    placement = Placement(num_chunks=CHUNKS, world_size=world, owners=owners)
    return placed_plan(mine, owners, world, buckets_of(graph, placement, "ring", 4096))


@pytest.mark.parametrize("net", with_more(["plain"], ["plain", "residual", "tied"]))
def test_twenty_generations_end_in_one_devices_parameters(members, net):
    """Nobody starts a process: members leave, come back, and are other ranks of other plans."""
    these, chosen = members(net), random.Random(7)
    counts = set()
    for number in range(20):
        taking_part = chosen.sample(range(MEMBERS), chosen.randint(1, 4))
        kind = ("ring", "ps", "scattered")[number % 3]
        these.begin(taking_part, a_plan(these, len(taking_part), kind, number))
        these.train(taking_part, chosen.randint(1, 2))
        counts.add((len(taking_part), kind))
    assert len(counts) >= 8
    assert difference(these.weights(), one_device(net, these.step)) <= 1e-9


def test_steps_are_told_when_no_order_waits_whichever_came_last(members):
    """An order that waits behind the steps has them told only after it: a loop that asks for each step needs them."""
    these = members("plain", 2)
    these.begin((0, 1), a_plan(these, 2, "ring", 0))
    for step in range(1, 6):
        these.tell((0, 1), {"do": "until", "step": step})
        these.tell((0, 1), {"do": "limit", "unsent_bytes": [None, None]})
        told = these.hear((0, 1), "steps")
        assert [each["steps"][-1]["step"] for each in told.values()] == [step - 1, step - 1]


def test_a_newcomer_meets_and_probes_while_the_others_train(members):
    these, last = members("plain", 3), 40
    these.begin((0, 1), a_plan(these, 2, "ring", 0))
    these.tell((0, 1), {"do": "until", "step": last})
    these.generation += 1  # of what is said beside the steps
    beside = {"beside": True, "ticket": 5}
    these.tell((0, 1, 2), {"do": "meet", "addresses": [[0, "", 0], [2, "", 0]], **beside})
    assert all(told["failed"] == "" for told in these.hear((0, 1, 2), "beside").values())
    probe = {"do": "probe", "generation": these.generation, "members": [2, 0], "patience_s": 30.0, **beside}
    for member in (2, 0):
        these.tell((member,), {**probe, "measures": member == 2})
    told = these.hear((2, 0), "beside")
    assert [told[member]["ticket"] for member in (2, 0)] == [5, 5]
    assert codec.decode(ProbedPair, told[2]["found"]).there_bytes_per_s > 0
    these.step = last - 1
    these.train((0, 1), 1)
    these.begin((0, 1, 2), a_plan(these, 3, "ring", 0))
    these.train((0, 1, 2), 2)
    assert difference(these.weights(), one_device("plain", these.step)) <= 1e-9


def test_a_newcomer_that_cannot_be_probed_says_so(members):
    these = members("plain", 2)
    probe = {"do": "probe", "generation": 1, "members": [1, 0], "patience_s": 0.05, "measures": True}
    these.tell((1,), {**probe, "beside": True, "ticket": 5})
    told = these.hear((1,), "beside")[1]
    assert "waited 0.05 s for rank 1 to answer a probe" in told["failed"]


def test_who_has_no_chunk_keeps_step_and_says_how_fast_it_is(members):
    these = members("plain", 3)
    plan = placed_plan(
        these.program,
        owners := {operator.name: (0, 0, 2, 2) for operator in these.graph.operators},
        3,
        buckets_of(these.graph, Placement(num_chunks=CHUNKS, world_size=3, owners=owners), "ring", 4096),
    )
    these.begin((0, 1, 2), plan)
    these.tell((1,), {"do": "gauge"})
    assert 0 < these.hear((1,), "gauged")[1]["bit_s"] < 1
    these.train((0, 1, 2), 3)
    assert difference(these.weights(), one_device("plain", 3)) <= 1e-9


def test_those_who_stay_go_on_when_a_member_is_lost(members):
    """In the middle of a step: they say what they saw, wait, and the next generation begins from what was kept."""
    these = members("plain", 3)
    these.begin((0, 1, 2), a_plan(these, 3, "ring", 0))
    these.train((0, 1, 2), 2)
    these.tell((0, 2), {"do": "until", "step": 5})
    these.lose(1)
    for told in these.hear((0, 2), "failed").values():
        assert (told["is_echo"], told["doing"]) == (True, "training")
    these.tell((0, 2), {"do": "checkpoint", "tag": 9, "evaluates": False})  # of a generation that is over
    these.tell((0, 2), {"do": "deliver", "tag": 10})  # too: who is left goes on
    these.begin((2, 0), a_plan(these, 2, "ring", 0))
    these.train((2, 0), 3)
    assert difference(these.weights(), one_device("plain", 5)) <= 1e-9


def test_a_generation_that_waits_for_somebody_can_be_abandoned(members):
    """Rank 1 was told nothing and will never send: the others are called back from the middle of the step."""
    these = members("plain", 3)
    these.begin((0, 1, 2), a_plan(these, 3, "ring", 0))
    these.train((0, 1, 2), 1)
    these.tell((0, 2), {"do": "until", "step": 3})
    these.tell((0, 1, 2), {"do": "abandon"})
    these.hear((0, 1, 2), "abandoned")
    these.begin((1, 0), a_plan(these, 2, "scattered", 4))
    these.train((1, 0), 2)
    assert difference(these.weights(), one_device("plain", 3)) <= 1e-9


def test_a_generation_that_waits_for_its_state_can_be_abandoned(members):
    """Somebody is lost while the others read what they go on from."""
    these = members("plain", 3)
    these.begin((0, 1, 2), a_plan(these, 3, "ring", 0))
    these.train((0, 1, 2), 1)
    these.abandon_while_state_comes((0, 1), a_plan(these, 2, "ring", 0))
    these.begin((1, 0), a_plan(these, 2, "scattered", 4))
    these.train((1, 0), 2)
    assert difference(these.weights(), one_device("plain", 3)) <= 1e-9


def test_a_generation_that_is_abandoned_before_it_begins_is_never_built(members, monkeypatch):
    """Else whoever builds would wait for the state of others, who do not give it any more."""
    these, called = members("plain", 2), [threading.Event() for _ in range(2)]
    with monkeypatch.context() as patched:
        patched.setattr(MemoryConnections, "abandon", lambda here: called[here.member].set())
        patched.setattr(MemoryWiring, "connect", lambda here, *_: called[here.connections.member].wait(WAIT_S))
        these.abandon_before_it_begins((0, 1), a_plan(these, 2, "ring", 0))
    these.begin((1, 0), a_plan(these, 2, "scattered", 4))
    these.train((1, 0), 2)
    assert difference(these.weights(), one_device("plain", 2)) <= 1e-9


def test_asynchronous_generations_end_too(members):
    these = members("plain", 3)
    these.begin((0, 1, 2), a_plan(these, 3, "ssp", 0))
    these.tell((0, 1), {"do": "until", "step": 4})
    these.tell((0, 1, 2), {"do": "abandon"})
    these.hear((0, 1, 2), "abandoned")
    these.begin((2, 0, 1), a_plan(these, 3, "ps", 0))
    these.train((2, 0, 1), 2)
    assert difference(these.weights(), one_device("plain", 2)) <= 1e-9


def test_a_members_own_failure_ends_it(members):
    these = members("plain", 2)
    these.tell((0,), {"do": "dance"})
    these.begin((0, 1), a_plan(these, 2, "ring", 0))
    these.tell((0,), {"do": "dance"})
    (told,) = these.hear((0,), "failed").values()
    assert (told["is_echo"], told["kind"]) == (False, "InternalError")


@pytest.mark.processes
@pytest.mark.timeout(240)
def test_processes_go_through_generations_while_others_come_and_die(tmp_path):
    """Two begin, a third comes while they train, one is killed in the middle of a step, and another one comes.

    One dies while the others meet it: they are called back.
    """
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parents[1])))
    these = Members(program("plain"), tmp_path, processes(script, 4))
    chosen = random.Random(5)
    try:
        these.come(0, 1)
        here = [0, 1]
        for number in range(20):
            if number in (5, 12):
                here.append(2 if number == 5 else 3)
                these.come(here[-1])
            if number == 9:
                these.begin((0, 1, 2), a_plan(these, 3, "ring", 0))
                these.tell((0, 2), {"do": "until", "step": these.step + 1})
                these.lose(1)
                these.hear((0, 2), "failed")
                here.remove(1)
            if number == 15:
                these.wait_in_vain(here)
            taking_part = chosen.sample(here, chosen.randint(1, len(here)))
            these.begin(taking_part, a_plan(these, len(taking_part), ("ring", "ps", "scattered")[number % 3], number))
            these.train(taking_part, 1)
    finally:
        these.close()
    assert difference(these.weights(), one_device("plain", 20)) <= 1e-9
