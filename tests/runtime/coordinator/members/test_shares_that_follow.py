"""A rank that slows down gets fewer chunks from a step on, or none, and more when it is fast again."""

from dataclasses import replace

import pytest
from coordinated import FOUND, READY, Job, orders
from pretended import cluster

from nfold.core.job import JobSettings
from nfold.core.trace import StepParts
from nfold.runtime.control import commands as cmd

CHUNKS = 8


@pytest.fixture
def following():
    return on_two_nodes(CHUNKS)


def on_two_nodes(chunks, **told):
    """Two nodes that are as fast, with links that take no time, and a long run on them."""
    fast = replace(FOUND, latency_s=0.0, there_bytes_per_s=1e12, back_bytes_per_s=1e12)
    settings = JobSettings(
        workers=2, strategy="ring", cluster=cluster("a", "b"), nodes=("a", "b"), checkpoint_every=10**6, steps=10**6
    )
    return Following(Job(settings, ready=READY | {"chunks": chunks, "most_threads": 1} | told, found=fast))


class Following:
    """A job whose ranks take as long as a test says."""

    def __init__(self, job: Job) -> None:
        self.job, self.step = job, 0
        job.until_training()
        self.plan = job.planned.plan

    def train(self, *times_slower: float) -> list[cmd.Command]:
        """Play steps until more than a step follows; return what does.

        Args:
            times_slower: of each rank, than the plan says.
        """
        while True:
            told = [each for rank in (0, 1) for each in self._report(rank, times_slower[rank])]
            self.step += 1
            news = [each for each in told if isinstance(each, cmd.Noted) or orders([each])[0].endswith("gauge")]
            if news or self.step % 300 == 0:
                return told

    def _report(self, rank: int, times_slower: float) -> list[cmd.Command]:
        nothing = dict.fromkeys(["input_s", "forward_s", "update_s", "communication_s", "other_s"], 0.0)
        parts = StepParts(
            step=self.step, rank=rank, step_s=1.0, backward_s=times_slower * self.plan.loads_s[rank], sent_bytes=0,
            samples=self.plan.batch_size if rank == 0 else 0, **nothing,
        )  # fmt: skip
        return self.job.steps(rank, self.step, parts=parts.to_row())

    def go_over(self) -> cmd.Replanned:
        """Stop at the step under way, and begin the next generation."""
        for rank in (0, 1):
            self.job.say(rank, "holding", step=self.step)
        told = self.job.hold(0, 1)
        self.job.all_say("connected")
        self.job.all_say("built", kept={}, notes=[], seconds=1e-3)
        (replanned,) = [each for each in told if isinstance(each, cmd.Replanned)]
        self.plan = replanned.plan
        return replanned

    @property
    def counts(self) -> list[int]:
        """Chunks of each rank."""
        owners = next(iter(self.plan.placement.owners.values()))
        return [owners.count(rank) for rank in (0, 1)]


def test_a_straggler_gets_fewer_chunks_then_none_then_some_again(following):
    assert following.counts == [4, 4]
    told = following.train(2.0, 2.0)
    assert not any(isinstance(each, cmd.Noted) for each in told), "all take longer than was said, and as long as ever"
    assert orders(following.train(2.0, 6.0)) == ["StepDone", "1 gauge", "Noted", "01 hold"]
    replanned = following.go_over()
    assert following.counts == [7, 1], "what a step takes beside chunks is three times as long there, too"
    assert [(shift.node, shift.told) for shift in replanned.shifts] == [
        ("b", "computes 3.0 times slower than at the start")
    ]
    assert not any(isinstance(each, cmd.Noted) for each in following.train(2.0, 2.0)), "it does what is expected of it"

    assert orders(following.train(2.0, 20.0))[1:] == ["1 gauge", "Noted", "01 hold"]
    following.job.say(1, "gauged", bit_s=1e-5)
    assert following.go_over().plan.workers == 2, "who has no chunk stays"
    assert following.counts == [8, 0]
    for bit_s in (1e-5, 4e-7):
        assert "1 gauge" in orders(following.train(2.0, 0.0))
        assert following.job.say(1, "gauged", bit_s=bit_s) == []
    assert "1 gauge" in orders(following.train(2.0, 0.0))
    assert orders(following.job.say(1, "gauged", bit_s=4e-7)) == ["Noted", "01 hold"]
    following.go_over()
    assert following.counts == [4, 4]


def test_a_node_that_was_measured_a_quarter_wrong_gets_fewer_chunks():
    """That is less than what counts as a change of one node, and other shares win all the same."""
    following = on_two_nodes(20, batch_size=40)
    slow_s = 0.9 / following.plan.loads_s[1]
    assert orders(following.train(0.82 * slow_s, slow_s)) == ["StepDone", "1 gauge", "Noted", "01 hold"]
    replanned = following.go_over()
    assert following.counts == [11, 9]
    assert [(shift.node, shift.told) for shift in replanned.shifts] == [
        ("b", "computes 1.2 times slower than was measured at the start")
    ]
    assert not any(isinstance(each, cmd.Noted) for each in following.train(slow_s, slow_s)), "it is as fast as planned"
