"""What a rank reports of its steps belongs to the generation that played them."""

from nfold.core.trace import StepParts
from nfold.runtime.control.channel import QueueChannel
from nfold.runtime.rank.reporter import Reporter
from nfold.runtime.step.replica import StepResult


class Sampler:
    """One that says when it begins and ends."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def start(self) -> None:
        self.states.append("begun")

    def stop(self) -> None:
        self.states.append("ended")

    def take(self) -> list[object]:
        return []


def played(step: int) -> StepResult:
    return StepResult(StepParts.from_row([step, 0, 0.1, *[0.0] * 6, 0, 1]), {0: 0.5}, (), 0.0)


def test_steps_that_were_not_told_are_none_of_the_next_generations():
    near, far = QueueChannel.pair()
    now_s, first, second = 1.0, Sampler(), Sampler()
    reporter = Reporter(near, lambda: now_s)
    reporter.begin(first)
    reporter.step(played(3))
    assert [each["step"] for each in far.receive()[0]["steps"]] == [3], "the first one is told at once"
    reporter.step(played(4))
    reporter.forget()
    assert not reporter.is_sampling, "the next generation samples anew"
    reporter.begin(second)
    reporter.step(played(5))
    reporter.flush()
    assert [each["step"] for each in far.receive()[0]["steps"]] == [5]
    assert (first.states, second.states) == (["begun", "ended"], ["begun"])


def test_a_long_step_is_told_when_it_is_over_and_not_with_the_losses_of_the_next_one():
    near, far = QueueChannel.pair()
    clock = iter((1.0, 1.0, 1.06, 1.06)).__next__
    reporter = Reporter(near, clock)
    for step in (3, 4):
        reporter.losses(step, {0: 0.5}, 1)
        assert far.receive()[0]["under_way"]["step"] == step
        reporter.step(played(step))
        assert [each["step"] for each in far.receive()[0]["steps"]] == [step]
