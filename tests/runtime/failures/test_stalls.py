"""Which task of a step takes far too long, in virtual time."""

import pytest

from nfold.runtime.failures.stalls import FIRST_S, LEAST_S, RunningTask, TaskWatch


def never(task):
    return False


class Clock:
    """A rank that does tasks while a thread of its looks every two seconds."""

    def __init__(self) -> None:
        self.watch, self.now_s, self.is_explained = TaskWatch(), 0.0, never

    def begin(self, kind="LOAD"):
        self.watch.begin(RunningTask(kind, 0, 1, self.now_s))

    def lasts(self, seconds):
        """Let time pass; return after how many seconds it was first told, or None."""
        begin_s, told_s = self.now_s, None
        while self.now_s < begin_s + seconds:
            self.now_s += min(2.0, begin_s + seconds - self.now_s)
            stall = self.watch.look(self.now_s, self.is_explained)
            told_s = told_s or (stall.seconds if stall else None)
        return told_s

    def steps(self, *seconds):
        for each in seconds:
            self.begin()
            assert self.lasts(each) is None
            self.watch.end(each)
            self.watch.step_done(each)


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize(("step_s", "limit_s"), [(0.01, LEAST_S), (1.0, LEAST_S), (2.0, 40.0), (40.0, 800.0)])
def test_a_task_is_told_of_once_it_takes_far_longer_than_steps_do(clock, step_s, limit_s):
    clock.steps(*[step_s] * 20)
    clock.begin()
    assert limit_s <= clock.lasts(10_000) < limit_s + 2.1
    clock.watch.end(10_000)
    assert clock.lasts(100) is None, "it is over"


def test_a_first_step_may_warm_up_for_long(clock):
    clock.steps(FIRST_S - 1)
    clock.watch.begin_plan(20.0)
    clock.begin("F")
    assert 400 <= clock.lasts(1_000) <= 402, "one that hangs is told of all the same"


def test_steps_that_are_always_longer_now_and_then_are_told_of_no_more(clock):
    clock.steps(*[0.1] * 20)
    clock.begin()
    assert clock.lasts(40) is not None
    clock.watch.end(40)
    clock.steps(*[0.1] * 20, 45.0, *[0.1] * 20, 45.0)


def test_time_between_tasks_is_nobodys(clock):
    clock.steps(*[0.1] * 3)
    assert clock.lasts(10_000) is None, "it waits for others, evaluates, or rests"


def test_the_time_of_a_machine_that_slept_does_not_count(clock):
    clock.steps(*[0.1] * 3)
    clock.begin()
    clock.lasts(10)
    clock.now_s += 3_600
    assert clock.lasts(LEAST_S - 4) is None
    assert clock.lasts(10) < LEAST_S + 10
    clock.now_s += 3_600
    assert clock.lasts(2) > 3_600, "what was told of does not go on by sleeping"


def test_who_waits_for_samples_of_another_rank_is_not_accused(clock):
    clock.steps(*[0.1] * 3)
    clock.begin()
    clock.is_explained = lambda task: True
    assert clock.lasts(1_000) is None
    clock.is_explained = never
    assert clock.lasts(LEAST_S - 4) is None
    assert clock.lasts(10) is not None, "it has them and does not get on"
