"""Ranks that were allowed many steps stop near: gates instead of steps, so that each rank is where a test wants it."""

import threading

import pytest

from nfold.runtime.control.channel import QueueChannel
from nfold.runtime.control.events import Received
from nfold.runtime.control.halting import Allowance, Halting
from nfold.runtime.control.order_log import NUMBER
from nfold.runtime.control.orders import Orders

pytestmark = pytest.mark.timeout(30)


def test_a_rank_begins_what_is_allowed_and_no_more():
    allowance = Allowance()
    assert not allowance.begin(0)
    allowance.grant(2)
    assert [allowance.begin(step) for step in range(3)] == [True, True, False]


def test_a_rank_that_holds_ends_the_step_that_it_has_begun():
    allowance = Allowance()
    allowance.grant(100)
    assert allowance.begin(0)
    assert allowance.hold() == 1
    assert not allowance.begin(1)


def test_ranks_are_asked_once():
    halting = Halting((0, 1))
    assert [len(halting.ask()) for _ in range(3)] == [1, 0, 0]


def test_nobody_is_allowed_more_until_all_have_said_where_they_stop():
    halting = Halting((0, 1))
    assert not halting.is_open
    halting.ask()
    assert halting.take(Received(0, {"is": "holding", "step": 3})) is None
    assert halting.is_open
    assert halting.take(Received(1, {"is": "holding", "step": 4})) == 4
    assert not halting.is_open


class Rank:
    """Takes orders as a worker does; each step waits at a gate until the test opens it."""

    def __init__(self):
        self.channel, far = QueueChannel.pair()
        self._orders = Orders(far, abandon=lambda: None)
        self.gate, self.begun = threading.Semaphore(0), threading.Semaphore(0)
        self.steps = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            order, _ = self._orders.get()
            while self.steps < order["step"] and self._orders.allowance.begin(self.steps):
                self.begun.release()
                self.gate.acquire()
                self.steps += 1
            self._orders._channel.send({"is": "done", "step": self.steps})

    def play(self, steps):
        """End so many steps and be in the middle of the next."""
        self.begun.acquire()
        for _ in range(steps):
            self.gate.release()
            self.begun.acquire()


def test_two_ranks_with_a_thousand_steps_before_them_stop_after_the_foremosts():
    ranks = (Rank(), Rank())
    halting = Halting((0, 1))
    for rank, ended in zip(ranks, (5, 4), strict=True):
        rank.channel.send({"do": "until", "step": 600, NUMBER: 1})
        rank.channel.send({"do": "until", "step": 1000, NUMBER: 2})
        rank.play(ended)
    (hold,) = halting.ask()
    for rank in ranks:
        rank.channel.send({**hold.message, NUMBER: 3})
    stops = [halting.take(Received(number, rank.channel.receive()[0], None)) for number, rank in enumerate(ranks)]
    assert stops == [None, 6], "in the middle of steps, the gates are closed"
    for rank in ranks:
        rank.channel.send({"do": "until", "step": 6, NUMBER: 4})
        for _ in range(1000):
            rank.gate.release()
        assert [rank.channel.receive()[0]["step"] for _ in range(3)][-1] == 6
