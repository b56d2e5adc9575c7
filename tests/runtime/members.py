"""Members of a job that stay while generations come and go. The test plays the coordinator.

They are threads of the test, or processes.
"""

import os
import queue
import signal
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import torch
from harness import graph_of, read_checkpoint

from nfold.core import codec
from nfold.launch.local_launcher import LocalLauncher
from nfold.launch.thread_launcher import ThreadLauncher
from nfold.planning.scheduling.rank_schedules import rank_schedules
from nfold.program import Program
from nfold.runtime.checkpoint.state_file import StoredState
from nfold.runtime.control import events as ev
from nfold.runtime.control.control_server import SocketControlServer, ThreadControlServer
from nfold.runtime.control.order_log import NUMBER
from nfold.runtime.control.orders import Orders
from nfold.runtime.control.spool import Spools
from nfold.runtime.data.loaders import LoaderPool
from nfold.runtime.rank.worker import Worker
from nfold.transport.implementations.in_memory import MemoryNetwork
from nfold.verbs.ranks.toolbox import MemoryWiring, Toolbox

WAIT_S = 60.0
TOKEN = "a secret"
LOAD = {
    "do": "load", "measure": False, "exact": False, "device": "cpu", "local_rank": 0, "threads": 1,
    "evaluate": False, "steps": None, "overrides": {}, "node": "", "lives": None,
}  # fmt: skip
Lose = Callable[[int, int], None]
"""Makes others lose a member, by its number and its process."""
Start = Callable[[Any, Spools], tuple[Any, Any, Lose]]
"""Returns who starts members, who hears them, and what makes others lose one."""


def threads(mine: Program, count: int) -> Start:
    """Members are threads of this process."""
    network = MemoryNetwork(count)

    def run(member: int, channel: Any) -> int:
        wiring = MemoryWiring(member, network)
        orders = Orders(channel, abandon=lambda: None)
        given = (member, channel, orders, lambda: mine, wiring, Toolbox())
        return Worker(*given, script=None, loader_pool=LoaderPool(None), owns_process=False).run()

    def start(events: Any, spools: Spools) -> tuple[Any, Any, Lose]:
        launcher = ThreadLauncher(lambda member: run(member, door.far_ends[member]), finish=network.close)
        door = expecting(ThreadControlServer(events, lambda member: launcher.ended(member, 0.0), spools), count)
        return launcher, door, lambda member, _: network.connections(member).abort()

    return start


def processes(script: Path, count: int) -> Start:
    """Members are processes of this machine, which are killed to be lost."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "nfold.verbs.ranks.rank_process",
        "--script",
        str(script),
        "--function",
        "program",
    ]

    def start(events: Any, spools: Spools) -> tuple[Any, Any, Lose]:
        launcher = LocalLauncher(command, None)
        door = SocketControlServer(
            "127.0.0.1",
            0,
            TOKEN,
            events,
            lambda member: launcher.ended(member, 5.0),
            tell=lambda line: None,
            spools=spools,
        )
        expecting(door, count)
        return launcher, door, lambda _, pid: os.kill(pid, signal.SIGKILL)

    return start


def expecting(door: Any, count: int) -> Any:
    """A door that so many members may come to."""
    for _ in range(count):
        door.expect()
    return door


class Members:
    """Processes or threads that are members of a job, and what a coordinator says to them."""

    def __init__(self, mine: Program, folder: Path, start: Start) -> None:
        """Args:
        mine: the program.
        folder: where its state is kept between generations.
        start: the kind of members.
        """
        self.program, self.graph = mine, graph_of(mine)
        self.step, self.generation, self.gone = 0, -1, set[int]()
        self._num_told = 0
        self._state: StoredState | None = None
        self._kept = folder / "state"
        self._events: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
        self._launcher, self._door, self._lose = start(self._events, Spools(folder))
        self._addresses: dict[int, list[Any]] = {}
        self._pids: dict[int, int] = {}

    def come(self, *members: int) -> None:
        """Start members, and let them load the program and listen, whatever others do meanwhile."""
        for member in members:
            self._launcher.start(member, self._door.host, self._door.port, TOKEN)
        self._pids |= {member: told["pid"] for member, told in self.hear(members, "hello").items()}
        self.tell(members, LOAD)
        self.hear(members, "ready")
        self.tell(members, {"do": "listen"})
        self._addresses |= {member: told["address"] for member, told in self.hear(members, "listening").items()}

    def tell(self, members: Iterable[int], order: dict[str, Any], blob: bytes = b"") -> None:
        """Send one order to some."""
        self._num_told += 1
        for member in members:
            self._door.channels[member].send({**order, NUMBER: self._num_told}, blob)

    def hear(self, members: Collection[int], what: str) -> dict[int, dict[str, Any]]:
        """Wait for a reply of each. Meanwhile members are given the state that they ask for, in any order."""
        replies: dict[int, dict[str, Any]] = {}
        while len(replies) < len(members):
            event = self._events.get(timeout=WAIT_S)
            if isinstance(event, ev.Left):
                assert event.member in self.gone, event
                continue
            assert isinstance(event, ev.Said)
            member, message = event.member, event.message
            if event.file is not None:
                event.file.put(self._kept)
                self._state = StoredState.open(self._kept)
            if message["is"] == "wants":
                assert self._state is not None
                self.tell((member,), {"do": "take"}, self._state.read(message["start"], message["stop"]))
            elif message["is"] == what and member in members:
                replies[member] = message
            else:
                assert message["is"] in ("steps", "connected"), (member, message)
        return replies

    def begin(self, members: Any, plan: Any) -> None:
        """Begin a generation from where the one before has ended."""
        self._order_build(members, plan)
        self.hear(members, "built")

    def abandon_while_state_comes(self, members: Any, plan: Any) -> None:
        """Let members begin to build, and call them back when the first one waits for its state."""
        self._order_build(members, plan)
        while (event := self._events.get(timeout=WAIT_S)).message["is"] != "wants":
            assert event.message["is"] == "connected"
        self.tell(members, {"do": "abandon"})
        self.tell(members, {"do": "take"}, b"too late")
        self.hear(members, "abandoned")

    def abandon_before_it_begins(self, members: Any, plan: Any) -> None:
        """Call members back that were told to build and do not connect before."""
        self._order_build(members, plan)
        self.tell(members, {"do": "abandon"})
        self.hear(members, "abandoned")

    def _order_build(self, members: Any, plan: Any) -> None:
        self.tell(members, self._meeting(members))
        header = self._state.header if self._state is not None else b""
        order = {
            "do": "build",
            "graph": codec.encode(self.graph),
            "plan": codec.encode(plan),
            "unsent_bytes": [None] * len(members),
            "total_steps": 1000,
            "placed": [],
            "moves": [],
            "state": None,
            "protect": 0,
            "commits": False,
        }
        for member, own in zip(members, rank_schedules(plan, self.graph), strict=True):
            self.tell((member,), {**order, "schedule": own.to_document()}, header)

    def wait_in_vain(self, members: Any) -> None:
        """Let members meet one that has died, and call them back."""
        dead = max(self._addresses) + 1
        meeting = self._meeting(members)
        meeting["addresses"].append([dead, "127.0.0.1", 1])
        self.tell(members, {**meeting, "members": [*members, dead]})
        self.tell(members, {"do": "abandon"})
        self.hear(members, "abandoned")

    def _meeting(self, members: Any) -> dict[str, Any]:
        self.generation += 1
        return {
            "do": "connect",
            "addresses": [[member, *self._addresses[member]] for member in members],
            "generation": self.generation,
            "members": list(members),
            "gone": sorted(self.gone),
        }

    def train(self, members: Any, steps: int) -> None:
        """Play steps, and keep the state."""
        self.step += steps
        self.tell(members, {"do": "until", "step": self.step})
        self.tell(members, {"do": "checkpoint", "tag": self.step, "evaluates": False})
        told = self.hear(members, "checkpoint")
        assert {each["step"] for each in told.values()} == {self.step}

    def weights(self) -> dict[str, torch.Tensor]:
        """What was kept last."""
        return read_checkpoint(self._kept.read_bytes()).model()

    def lose(self, member: int) -> None:
        """Let the others lose a member."""
        self.gone.add(member)
        self._lose(member, self._pids[member])

    def close(self) -> None:
        """End all."""
        self._door.close()
        self._launcher.stop(WAIT_S)
