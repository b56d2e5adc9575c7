"""Processes that stay while generations come and go: other members, strategies and numbers of ranks, one result.

The test plays the coordinator; each member is a worker, in a thread of its own.
"""

import contextlib
import queue
import random
import threading
from functools import cache
from typing import Any

import pytest
import torch
from harness import difference, graph_of, make_plan, placed_plan, plain_loop, random_owners, read_checkpoint
from nets import program

from nfold.core import codec
from nfold.core.placement import Placement
from nfold.planning.buckets import buckets_of
from nfold.planning.rank_schedules import rank_schedules
from nfold.runtime.channel import PIECE, ChannelClosed, QueueChannel
from nfold.runtime.loaders import Staff
from nfold.runtime.orders import Orders
from nfold.runtime.worker import Worker
from nfold.transport.memory import MemoryNetwork
from nfold.verbs.threads import threads_put_back
from nfold.verbs.toolbox import MemoryWiring, Toolbox

CHUNKS, MEMBERS, WAIT_S = 4, 5, 30.0
LOAD = {
    "do": "load", "measure": False, "device": "cpu", "local_rank": 0, "threads": 1,
    "evaluate": False, "steps": None, "overrides": {},
}  # fmt: skip


class Members:
    """Workers of one program, and what a coordinator says to them."""

    def __init__(self, mine: Any, count: int) -> None:
        self.graph = graph_of(mine)
        self.program, self.state, self.step, self.generation = mine, b"", 0, -1
        self.gone: list[int] = []
        self._network = MemoryNetwork(count)
        self._heard: queue.SimpleQueue[tuple[int, dict[str, Any], bytes]] = queue.SimpleQueue()
        self._pieces: list[bytes] = []
        self._near: list[QueueChannel] = []
        self._threads: list[threading.Thread] = []
        for member in range(count):
            near, far = QueueChannel.pair()
            orders = Orders(far, abandon=lambda: None)
            wiring = MemoryWiring(member, self._network)
            worker = Worker(
                member, far, orders, lambda: mine, wiring, Toolbox(), script=None, staff=Staff(None), owns_process=False
            )
            self._near.append(near)
            self._threads.append(threading.Thread(target=worker.run, daemon=True))
            self._threads[-1].start()
            threading.Thread(target=self._listen, args=(member,), daemon=True).start()
        self.hear(range(count), "hello")
        self.tell(range(count), LOAD)
        self.hear(range(count), "ready")

    def tell(self, members: Any, order: dict[str, Any], blob: bytes = b"") -> None:
        """Send one order to some."""
        for member in members:
            self._near[member].send(order, blob)

    def hear(self, members: Any, what: str) -> dict[int, dict[str, Any]]:
        """Wait for a reply of each. Meanwhile members are given the state that they ask for, in any order."""
        replies: dict[int, dict[str, Any]] = {}
        while len(replies) < len(members):
            member, message, blob = self._heard.get(timeout=WAIT_S)
            if message["is"] == PIECE:
                self._pieces.append(blob)
            elif message["is"] == "wants":
                self._near[member].send({"do": "take"}, self.state[message["start"] : message["stop"]])
            elif message["is"] == what and member in members:
                replies[member] = message
            else:
                assert message["is"] == "steps", (member, message)
        if self._pieces:
            self.state, self._pieces = b"".join(self._pieces), []
        return replies

    def _listen(self, member: int) -> None:
        with contextlib.suppress(ChannelClosed):
            while True:
                self._heard.put((member, *self._near[member].receive()))

    def begin(self, members: Any, plan: Any) -> None:
        """Begin a generation from where the one before has ended."""
        self.generation += 1
        meeting = {
            "do": "connect",
            "addresses": [[member, "", 0] for member in members],
            "generation": self.generation,
            "members": list(members),
            "gone": self.gone,
        }
        self.tell(members, meeting)
        self.hear(members, "connected")
        header = self.state[: 8 + int.from_bytes(self.state[:8], "little")]
        order = {
            "do": "build",
            "graph": codec.encode(self.graph),
            "plan": codec.encode(plan),
            "unsent_bytes": [None] * len(members),
            "total_steps": 1000,
        }
        for member, own in zip(members, rank_schedules(plan, self.graph), strict=True):
            self.tell((member,), {**order, "schedule": own.to_document()}, header)
        self.hear(members, "built")

    def train(self, members: Any, steps: int) -> None:
        """Play steps, and keep the state."""
        self.step += steps
        self.tell(members, {"do": "until", "step": self.step})
        self.tell(members, {"do": "checkpoint", "tag": self.step, "evaluates": False})
        told = self.hear(members, "checkpoint")
        assert {each["step"] for each in told.values()} == {self.step}

    def weights(self) -> dict[str, torch.Tensor]:
        """What was kept last."""
        return read_checkpoint(self.state).model()

    def lose(self, member: int) -> None:
        """Let a member's connections break, as when its process dies."""
        self._network.connections(member).abort()
        self.gone.append(member)

    def join(self, member: int) -> None:
        """Wait for a member's end."""
        self._threads[member].join(WAIT_S)
        assert not self._threads[member].is_alive()

    def close(self) -> None:
        """End all."""
        for member, near in enumerate(self._near):
            near.close()
            self.join(member)
        self._network.close()


@pytest.fixture
def members():
    """Make members, and end them."""
    made: list[Members] = []

    def make(net: str, count: int = MEMBERS) -> Members:
        made.append(Members(program(net), count))
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


@pytest.mark.parametrize("net", ["plain", "residual", "tied"])
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
    these.join(0)
