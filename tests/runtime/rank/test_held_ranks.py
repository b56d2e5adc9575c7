"""Ranks whose coordinator is gone in the moment in which an order has reached one of them only. They are threads."""

import queue
import threading
from typing import Any

import pytest
from harness import difference, make_plan, plain_loop, read_checkpoint
from members import WAIT_S, Members, expecting
from nets import program

from nfold.launch.thread_launcher import ThreadLauncher
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control.channel import ChannelClosed, QueueChannel
from nfold.runtime.control.control_server import ThreadControlServer, listen
from nfold.runtime.control.orders import Orders
from nfold.runtime.control.returning_channel import ReturningChannel
from nfold.runtime.control.spool import Spools
from nfold.runtime.coordinator.reunion import Kept, Reunion, RunSoFar
from nfold.runtime.data.loaders import LoaderPool
from nfold.runtime.rank.worker import Worker
from nfold.transport.implementations.in_memory import MemoryNetwork
from nfold.verbs.ranks.thread_ranks import threads_put_back
from nfold.verbs.ranks.toolbox import MemoryWiring, Toolbox

pytestmark = pytest.mark.timeout(60)
RANKS, CHUNKS = (0, 1), 4
COLLECTS = {"tag": 40, "evaluates": False}
PROBES = {"measures": True, "patience_s": 30.0, "round": 1}


class Held:
    """Two ranks that hold when their coordinator is gone, and another coordinator, to which they come."""

    def __init__(self, folder):
        self._mine, self._network = program("plain"), MemoryNetwork(len(RANKS))
        self._events = queue.SimpleQueue()
        self._spools, self._channels, self._is_over = Spools(folder), {}, False
        self.members = Members(self._mine, folder, self._start)
        self.plan = make_plan(self._mine, self.members.graph, "ring", len(RANKS), 0, CHUNKS)

    def _start(self, events: Any, spools: Spools) -> Any:
        self._launcher = ThreadLauncher(self._run, finish=self._network.close)
        ended = self._launcher.ended
        self._door = expecting(ThreadControlServer(events, lambda rank: ended(rank, 0.0), spools), len(RANKS))
        return self._launcher, self._door, None

    def _run(self, rank: int) -> int:
        first, dial = self._door.far_ends[rank], lambda: self._dial(rank)
        channel = ReturningChannel(first, dial, WAIT_S, lambda: not self._is_over, wait=lambda seconds: None)
        orders = Orders(channel, abandon=self._network.connections(rank).abort, returns=channel)
        given = (rank, channel, orders, lambda: self._mine, MemoryWiring(rank, self._network), Toolbox())
        return Worker(*given, script=None, loader_pool=LoaderPool(None), owns_process=False).run()

    def _dial(self, rank: int) -> QueueChannel:
        if self._is_over:
            raise ChannelClosed("nobody is there")
        self._channels[rank], far = QueueChannel.pair()
        heard = (rank, self._channels[rank], self._events, lambda rank: None, self._spools)
        threading.Thread(target=listen, args=heard, daemon=True).start()
        return far

    def lose_coordinator(self) -> None:
        for rank in RANKS:
            self._door.channels[rank].close()

    def reunite(self, last_step: int) -> Kept:
        reunion = Reunion(RunSoFar(plan=self.plan, kept_step=0, last_step=last_step, epochs=EpochSteps.even(3)))
        while reunion.result is None:
            for order in reunion.take(self._events.get(timeout=WAIT_S)):
                for rank in order.members:
                    self._channels[rank].send(order.message)
        assert isinstance(reunion.result, Kept), reunion.result
        return reunion.result

    def check_model(self, kept: Kept) -> None:
        expected = plain_loop(self._mine, kept.step, CHUNKS).state_dict()
        assert difference(read_checkpoint(kept.file.path.read_bytes()).model(), expected) <= 1e-9

    def close(self) -> None:
        self._is_over = True
        for channel in self._channels.values():
            channel.close()
        self.members.close()


@pytest.fixture
def held(tmp_path):
    with threads_put_back():
        made = Held(tmp_path)
        made.members.come(*RANKS)
        yield made
        made.close()


@pytest.mark.parametrize("reached", RANKS)
@pytest.mark.parametrize("do", ["until", "checkpoint", "deliver", "probe"])
def test_an_order_that_has_reached_one_rank_only_costs_no_step(held, do, reached):
    members = held.members
    members.begin(RANKS, held.plan)
    members.train(RANKS, 2)
    members.tell(RANKS, {"do": "until", "step": 5})
    lone = {"step": 6} if do == "until" else {"peer": 1 - reached, **PROBES} if do == "probe" else COLLECTS
    members.tell((reached,), {"do": do, **lone})
    held.lose_coordinator()

    kept = held.reunite(2)

    assert kept.step == (6 if do == "until" else 5)
    assert [done.step for done in kept.steps] == [*range(2, kept.step)]
    held.check_model(kept)
