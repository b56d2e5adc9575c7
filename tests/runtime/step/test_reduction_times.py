"""When a bucket is complete, moves and is done, from events written by hand."""

from typing import Any

import pytest

from nfold.core.tasks import Backward, ChunkTensor, Elements, OptimizerStep, Receive, Send, Signal, Task
from nfold.core.trace import ReductionParts
from nfold.runtime.step.reduction_times import ReductionTimes


class Hand:
    """A clock that is set by hand, and the times of some tasks."""

    def __init__(self, *tasks: Task) -> None:
        self.now_s = 0.0
        self.times = ReductionTimes(tasks, lambda: self.now_s)
        self.times.begin()

    def at(self, now_s: float, event: int, started_s: float = 0.0) -> None:
        self.now_s = now_s
        self.times.happened(event, started_s)

    def parts(self) -> dict[str, ReductionParts]:
        return {part.reduction: part for part in self.times.parts(7, 0)}


def message(event: int, end: Any, bucket: str, purpose: Any, peer: int = 1, **fields: Any) -> Task:
    data = Elements("statistics" if purpose == "statistics" else "gradient", bucket, 0, 2)
    return end(id=event, purpose=purpose, peer=peer, tag=event, data=data, **{"payload_bytes": 0, **fields})


def update(event: int, *after: int) -> Task:
    return OptimizerStep(id=event, after=after, gradients=Elements("gradient", "b0", 0, 2))


BACKWARD = Backward(
    id=0,
    chunk=0,
    segment=0,
    signals=(Signal(event=1, reduction="b0", fraction=0.5), Signal(event=2, reduction="b1", fraction=1.0)),
)
RING = (
    BACKWARD,
    message(10, Send, "b0", "reduce", after=(1,), payload_bytes=8),
    message(11, Receive, "b0", "reduce", after=(1,), payload_bytes=8),
    message(12, Send, "b0", "gather", after=(11,), payload_bytes=8),
    message(13, Receive, "b0", "gather", payload_bytes=8),
    message(20, Send, "b1", "reduce", after=(2,), payload_bytes=4),
    message(21, Receive, "b1", "gather", payload_bytes=4),
)


def test_a_bucket_takes_from_its_first_byte_to_its_last_message() -> None:
    hand = Hand(*RING)
    hand.at(1.0, 1)
    hand.at(1.5, 10, started_s=1.1)
    hand.at(2.0, 11)
    hand.at(2.5, 12, started_s=2.0)
    hand.at(4.0, 13)
    part = hand.parts()["b0"]
    assert (part.step, part.rank, part.sent_bytes) == (7, 0, 16)
    assert part.queue_s == pytest.approx(0.1)
    assert part.duration_s == pytest.approx(2.9)


def test_a_bucket_waits_until_the_message_before_it_to_the_same_peer_has_gone() -> None:
    hand = Hand(*RING)
    hand.at(1.0, 1)
    hand.at(1.2, 2)
    hand.at(3.0, 10, started_s=1.0)
    hand.at(3.5, 20, started_s=1.2)
    hand.at(5.0, 21)
    part = hand.parts()["b1"]
    assert part.queue_s == pytest.approx(1.8)
    assert part.duration_s == pytest.approx(2.0)


def test_any_message_to_a_peer_fills_its_queue_and_no_other() -> None:
    activation = Send(id=5, purpose="activation", peer=1, tag=5, data=ChunkTensor("a", 0), payload_bytes=0)
    to_other = message(30, Send, "b0", "push", peer=2, after=(1,))
    hand = Hand(BACKWARD, activation, message(10, Send, "b0", "push", after=(1,)), to_other)
    hand.at(1.0, 1)
    hand.at(2.0, 5, started_s=0.5)
    hand.at(2.5, 10, started_s=1.0)
    assert hand.parts()["b0"].queue_s == pytest.approx(1.0)
    hand.at(3.0, 30, started_s=1.25)
    part = hand.parts()["b0"]
    assert part.queue_s == pytest.approx(0.25)
    assert part.duration_s == pytest.approx(1.75)


def test_gradients_are_complete_with_the_last_backward_that_feeds_them() -> None:
    tasks = (
        Backward(id=0, chunk=0, segment=0),
        Backward(id=1, chunk=1, segment=0),
        message(10, Send, "b0", "push", after=(0, 1)),
        message(11, Receive, "b0", "pull"),
    )
    hand = Hand(*tasks)
    hand.at(1.0, 0)
    hand.at(2.0, 1)
    hand.at(3.0, 10, started_s=2.25)
    hand.at(4.0, 11)
    assert hand.parts()["b0"].queue_s == pytest.approx(0.25)


def test_a_rank_that_sums_for_others_begins_when_it_is_ready() -> None:
    hand = Hand(
        BACKWARD,
        message(10, Receive, "b0", "push", after=(1,)),
        update(11, 10),
        message(12, Send, "b0", "pull", after=(11,), payload_bytes=8),
    )
    hand.at(1.0, 1)
    hand.at(3.0, 10)
    hand.at(3.5, 11)
    hand.at(4.0, 12, started_s=3.5)
    part = hand.parts()["b0"]
    assert (part.queue_s, part.duration_s) == (0.0, 3.0)


def test_a_dedicated_server_and_a_lonely_bucket_have_no_times() -> None:
    server = (
        message(10, Receive, "b0", "push"),
        update(11, 10),
        message(12, Send, "b0", "pull", after=(11,)),
    )
    alone = (BACKWARD, update(11, 1))
    assert Hand(*server).parts() == Hand(*alone).parts() == {}


def test_statistics_are_no_bucket() -> None:
    hand = Hand(BACKWARD, message(10, Send, "statistics/0", "statistics", after=(0,)))
    hand.at(1.0, 10)
    assert hand.parts() == {}


def test_every_step_is_timed_afresh() -> None:
    hand = Hand(*RING)
    for begin_s in (0.0, 100.0):
        hand.times.begin()
        hand.at(begin_s + 1, 1)
        hand.at(begin_s + 2, 10, started_s=begin_s + 1)
        for event in (11, 12, 13):
            hand.at(begin_s + 3, event, started_s=begin_s + 2)
        assert hand.parts()["b0"].duration_s == pytest.approx(2.0)


def test_waiting_for_a_turn_among_messages_to_others_is_queueing() -> None:
    hand = Hand(
        BACKWARD,
        message(10, Send, "b0", "push", peer=1, after=(1,)),
        message(11, Send, "b0", "push", peer=2, after=(1,)),
        message(12, Receive, "b0", "pull"),
        message(20, Send, "b1", "push", peer=1, after=(2, 10, 11)),
        message(21, Receive, "b1", "pull"),
    )
    hand.at(1.0, 1)
    hand.at(1.5, 2)
    hand.at(2.0, 10, started_s=1.0)
    hand.at(4.0, 11, started_s=1.0)
    hand.at(5.0, 20, started_s=4.0)
    hand.at(7.0, 21)
    part = hand.parts()["b1"]
    assert (part.queue_s, part.duration_s) == (2.5, 3.0)
