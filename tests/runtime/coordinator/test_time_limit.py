"""When a run must stop so that its checkpoint is there in time; and what the coordinator does about it."""

from math import inf

import pytest
from coordinated import READY, Job, failure, file, orders

from nfold.errors import RunError
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.time_limit import TimeLimit

LONG = READY | {"num_samples": 1000, "items": {"0": 3, "500": 5, "999": None}}
"""Forty steps an epoch: no checkpoint is due soon."""


def test_the_longest_checkpoint_so_far_has_its_room():
    limit = TimeLimit(100.0)
    assert limit.due_s == 100.0
    limit.worked(10.0)
    limit.kept(14.0)
    limit.worked(20.0)
    limit.kept(21.0)
    assert limit.due_s == 96.0


def test_steps_that_are_handed_out_and_cannot_be_called_back_have_their_time():
    limit = TimeLimit(100.0)
    limit.allowed(16)
    assert limit.due_s == 100.0, "nobody knows how long a step takes"
    limit.played(3, 2.0)
    limit.played(4, 2.0)
    assert limit.due_s == 100.0 - 12 * 2.0
    limit.played(5, 20.0)
    assert limit.due_s == 100.0 - 11 * 2.0, "of one step that was held up nothing follows"
    limit.played(16, 2.0)
    assert limit.due_s == 100.0


def test_what_was_told_or_never_given_is_never_due():
    limit = TimeLimit(5.0)
    limit.tell()
    assert limit.due_s == TimeLimit().due_s == inf


def test_a_run_whose_time_is_over_ends_after_the_step_under_way_with_a_checkpoint():
    job = Job(ready=LONG)
    job.until_training()
    job.all_step(0)
    assert orders(job.handle(ev.TimeUp(9.0))) == ["01 hold"]
    job.say(0, "holding", step=2)
    assert orders(job.say(1, "holding", step=1)) == ["01 until 2"]
    job.steps(0, 1)
    assert orders(job.steps(1, 1)) == ["StepDone", "01 checkpoint", "01 deliver"]
    job.say(0, "checkpoint", file("state"))
    assert job.say(1, "checkpoint") == [cmd.KeepCheckpoint(2, file("state"))]
    job.finish(1)
    (finished,) = job.finish(0)
    assert (finished.interrupted, finished.is_time_up) == (True, True)


def test_one_step_is_done_however_short_the_time():
    """Else a job that is started again and again would never get anywhere."""
    job = Job(ready=LONG)
    job.until_training()
    assert job.handle(ev.TimeUp(9.0)) == []
    assert orders(job.all_step(0)) == ["StepDone", "01 hold"]


def test_a_time_that_ends_before_training_is_refused():
    job = Job()
    job.start()
    error = failure(job.handle(ev.TimeUp(9.0)))
    assert isinstance(error, RunError)
    assert "--stop-after gives, 9 s, was over before the first step" in str(error)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_user_who_stops_a_run_too_is_told_as_ever(is_first):
    job = Job(ready=LONG)
    job.until_training()
    job.all_step(0)
    events = [ev.Interrupted(by_key=True), ev.TimeUp(9.0)]
    for event in events if is_first else reversed(events):
        job.handle(event)
    job.all_say("holding", step=1)
    job.say(1, "checkpoint", has_file=False)
    job.say(0, "checkpoint", file("state"), has_file=True)
    job.finish(1)
    (*_, ended) = job.finish(0)
    assert (ended.interrupted, ended.is_time_up) == (True, not is_first)
