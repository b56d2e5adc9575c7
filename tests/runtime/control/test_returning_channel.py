"""A rank's channel that is lost and comes back: what is heard, what is not, and when it is lost for good."""

import queue
import threading

import pytest

from nfold.runtime.control.channel import ChannelClosed, QueueChannel
from nfold.runtime.control.order_log import NUMBER
from nfold.runtime.control.orders import Orders
from nfold.runtime.control.returning_channel import RETRY_S, TOLD_AGAIN, TOLD_AGAIN_S, ReturningChannel
from nfold.runtime.coordinator.progress import DRIFT

pytestmark = pytest.mark.timeout(30)
HELD = {"stop": 7}


class Coordinators:
    """One after another; the test is each of them. Waiting is free, and counts as time."""

    def __init__(self):
        self.now_s, self.wanted = 0.0, True
        self.away = 0
        self.near, far = QueueChannel.pair()
        self.channel = ReturningChannel(
            far, self._dial, 10.0, lambda: self.wanted, clock=lambda: self.now_s, wait=self._wait
        )
        self.channel.hold(lambda: HELD)
        self.dialled = queue.SimpleQueue()

    def _wait(self, seconds):
        self.now_s += seconds

    def _dial(self):
        if self.away:
            self.away -= 1
            raise ChannelClosed("nobody answers there")
        near, far = QueueChannel.pair()
        self.dialled.put(near)
        return far

    def next(self):
        """The next one lets the rank in."""
        self.near = self.dialled.get(timeout=10.0)
        return self.near


@pytest.fixture
def coordinators():
    return Coordinators()


def told_again(coordinators) -> list[object]:
    """What another coordinator hears first."""
    coordinators.near.close()
    coordinators.away = 3
    assert coordinators.channel.come_back()
    near = coordinators.next()
    coordinators.channel.send({"is": "failed"})
    hello, *steps = iter(lambda: near.receive()[0], {"is": "failed"})
    assert hello == {"is": "hello", **HELD}
    return [report["step"] for told in steps for report in told["steps"]]


def steps(*numbers: int) -> dict[str, object]:
    return {"is": "steps", "steps": [{"step": number} for number in numbers], "under_way": {"step": numbers[-1] + 1}}


def test_another_coordinator_hears_first_what_is_held_and_then_the_last_steps_again(coordinators):
    channel = coordinators.channel
    for number, second in enumerate((0.0, 1.0, 1.0 + TOLD_AGAIN_S / 2)):
        coordinators.now_s = second + (TOLD_AGAIN_S if number else 0.0)
        channel.send(steps(number))
        if not number:
            channel.begin_anew(1)
    assert told_again(coordinators) == [1, 2], "the first one is too old to have been lost"


def test_slow_steps_are_told_again_as_far_as_others_may_not_have_told_them(coordinators):
    for number in range(2 * TOLD_AGAIN):
        coordinators.now_s += 2 * TOLD_AGAIN_S
        coordinators.channel.send(steps(number))
        coordinators.channel.send({"is": "steps", "steps": []})
    assert told_again(coordinators) == [*range(TOLD_AGAIN, 2 * TOLD_AGAIN)]
    assert TOLD_AGAIN > DRIFT


def test_steps_that_are_played_again_are_not_told_again_as_they_were_before(coordinators):
    """What was told of them is of other ranks. What was told of the steps before them counts."""
    channel = coordinators.channel
    channel.send(steps(8, 9))
    channel.send(steps(10, 11))
    channel.send(steps(9, 10))
    channel.begin_anew(10)
    channel.send(steps(10))
    assert told_again(coordinators) == [8, 9, 9, 10]


def test_replies_to_who_is_gone_reach_nobody_until_its_orders_are_played_out(coordinators):
    channel = coordinators.channel
    coordinators.near.close()
    channel.send({"is": "checkpoint"})
    assert channel.come_back()
    channel.send({"is": "evaluated"})
    channel.send({"is": "failed"})
    channel.forget(channel.num_losses)
    channel.send({"is": "built"})
    near = coordinators.next()
    assert [near.receive()[0]["is"] for _ in range(3)] == ["hello", "failed", "built"]


def test_orders_of_one_that_is_gone_too_are_answered_to_nobody(coordinators):
    channel = coordinators.channel
    for _ in range(2):
        coordinators.near.close()
        assert channel.come_back()
        coordinators.next()
    channel.forget(1)
    channel.send({"is": "built"})
    channel.forget(2)
    channel.send({"is": "checkpoint"})
    assert [coordinators.near.receive()[0]["is"] for _ in range(2)] == ["hello", "checkpoint"]


def test_who_holds_nothing_is_lost_with_its_coordinator(coordinators):
    coordinators.channel.hold(lambda: None)
    coordinators.near.close()
    with pytest.raises(ChannelClosed):
        coordinators.channel.send({"is": "built"})
    assert not coordinators.channel.come_back()


def test_the_time_to_hold_goes_on_until_an_order_comes(coordinators):
    """Somebody lets it in and hangs up, again and again, as one does who waits for others."""
    coordinators.near.close()
    while coordinators.channel.come_back():
        coordinators.next().close()
    assert coordinators.channel.num_losses == pytest.approx(10.0 / RETRY_S, abs=2)


def test_an_order_begins_the_time_anew(coordinators):
    coordinators.near.close()
    assert coordinators.channel.come_back()
    coordinators.next().send({"do": "until", "step": 8})
    coordinators.now_s += 9.0
    assert coordinators.channel.receive()[0]["do"] == "until"
    coordinators.near.close()
    assert coordinators.channel.come_back()


def test_nobody_holds_whose_agent_is_gone(coordinators):
    coordinators.near.close()
    coordinators.wanted = False
    assert not coordinators.channel.come_back()


def test_what_was_ordered_before_is_played_out_and_what_comes_then_is_answered(coordinators):
    given = [{"do": "until", "step": 5, NUMBER: 1}, {"do": "checkpoint", NUMBER: 2}, {"do": "hold", NUMBER: 3}]
    for order in given:
        coordinators.near.send(order)
    ended = threading.Event()
    orders = Orders(coordinators.channel, abandon=ended.set, returns=coordinators.channel)
    orders.on_loss(lambda: {"stop": orders.allowance.stop, **orders.log.told})
    coordinators.near.close()
    near = coordinators.next()
    assert near.receive()[0] == {"is": "hello", "stop": 0, "last_order": 3, "since_order": 0, "orders": given[:2]}
    near.send({"do": "model", NUMBER: 4})
    for order in ("until", "checkpoint", "model"):
        assert orders.get()[0]["do"] == order
        coordinators.channel.send({"is": f"done: {order}"})
    assert near.receive()[0] == {"is": "done: model"}
    coordinators.wanted = False
    near.close()
    assert ended.wait(10.0)
    with pytest.raises(ChannelClosed):
        orders.get()
