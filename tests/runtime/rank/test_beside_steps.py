"""What a rank does for newcomers beside its steps: nothing that fails for one disturbs another, or the rank."""

import queue
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nfold.runtime.checkpoint.joined_facts import UNKEPT
from nfold.runtime.rank import beside_steps
from nfold.runtime.rank.beside_steps import BesideSteps, Shadowing, to_build
from nfold.runtime.step.replica import Replica
from nfold.transport.implementations.in_memory import MemoryNetwork

LEND = {"ticket": 1, "generation": 1, "members": [1, 0], "reductions": []}


class World:
    """One rank that lends, and two newcomers."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        network = MemoryNetwork(3)
        self.members = [network.connections(member) for member in range(3)]
        self.members[0].begin(0, [0])
        self.channel = SimpleNamespace(send=self.told.append)
        self.wiring = SimpleNamespace(connections=self.members[0])
        self.shadowing = Shadowing(SimpleNamespace(channel=self.channel, member=0), self.wiring)

    def lend(self, **more: Any) -> None:
        rank = SimpleNamespace(
            replica=object.__new__(Replica), reached=3, may_be_followed=True, transport=SimpleNamespace(number=0)
        )
        self.shadowing.lend(rank, LEND | more)


@pytest.fixture
def world(monkeypatch) -> Iterator[World]:
    lending = SimpleNamespace(told={"rows": [], "facts": {UNKEPT: ""}}, end=lambda: None)
    monkeypatch.setattr(beside_steps, "Lending", lambda *_: lending)
    made = World()
    yield made
    for each in made.members:
        each.abort()


def test_a_shadow_that_is_given_up_late_does_not_end_the_probe_of_the_next_newcomer(world):
    world.lend()
    begun, done, lost = threading.Event(), threading.Event(), []

    def probe(transport, *_, **__):
        transport.on_failure(lost.append)
        begun.set()
        assert done.wait(10)

    beside = BesideSteps(world.channel, world.wiring, SimpleNamespace(probe=probe))
    order = {"do": "probe", "ticket": 2, "generation": 2, "members": [2, 0], "measures": False, "patience_s": 9.0}
    beside.take(order, b"")
    assert begun.wait(10)
    world.lend(members=[])
    world.lend()
    assert "has begun beside" in world.told[-1]["failed"], "it is of the one before"
    assert not lost
    done.set()
    beside.end()


def test_a_newcomer_whose_connection_to_a_rank_is_lost_has_not_met_it():
    wiring = SimpleNamespace(connections=SimpleNamespace(lost=frozenset({2})), connect=lambda *_: None)
    told = queue.SimpleQueue()
    beside = BesideSteps(SimpleNamespace(send=told.put), wiring, SimpleNamespace())
    beside.take({"do": "meet", "ticket": 2, "addresses": [[0, "", 0], [2, "", 0]]}, b"")
    assert told.get(timeout=10)["failed"] == "its connection to member 2 is lost"
    beside.end()


def test_a_rank_that_cannot_copy_its_part_trains_on(world, monkeypatch):
    def lack_memory(*_):
        raise MemoryError

    monkeypatch.setattr(beside_steps, "Lending", lack_memory)
    world.lend()
    (told,) = world.told
    assert (told["is"], told["failed"]) == ("lent", "MemoryError")


PART, WHOLE = {"rank": 2, "world_size": 3, "plan": "part"}, {"plan": "whole"}
BUILT_WHOLE = {"rank": 0, "world_size": 1, "plan": "whole", "follows": True, "whole": WHOLE}


@pytest.mark.parametrize(
    ("owns_process", "follows", "whole", "built"),
    [
        (True, False, None, [PART | {"follows": False, "whole": None}]),
        (False, False, None, []),
        (False, True, None, [PART | {"follows": True, "whole": None}]),
        (False, True, WHOLE, [BUILT_WHOLE]),
        (True, True, WHOLE, [PART | {"follows": False, "whole": WHOLE}, BUILT_WHOLE]),
    ],
)
def test_a_newcomer_builds_what_it_follows_with_last(owns_process, follows, whole, built):
    assert to_build(PART | {"follows": follows, "whole": whole}, owns_process=owns_process) == built
