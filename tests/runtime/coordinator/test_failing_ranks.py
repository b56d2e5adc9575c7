"""The coordinator event by event: ranks that fail, die, fall silent or are cut off from each other."""

from typing import Any

import pytest
from coordinated import READY, Job, failure, file, orders

from nfold.core.job import JobSettings
from nfold.errors import WorkerLost
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.coordinator import POSTMORTEM_S


def phases() -> dict[str, Any]:
    """Jobs right after each order."""

    def trained(job: Job) -> None:
        job.until_training()
        job.all_step(0, 1, 2, 3)

    def finishing(job: Job) -> None:
        trained(job)
        job.all_step(4, 5, 6, 7)

    def profiling(job: Job) -> None:
        job.start()
        job.all_say("ready", **READY)

    def listening(job: Job) -> None:
        profiling(job)
        job.profiled()

    return {
        "load": Job.start,
        "profile": profiling,
        "listen": listening,
        "probe": lambda job: (listening(job), job.wire()),
        "build": Job.until_planned,
        "train": Job.until_training,
        "checkpoint": trained,
        "deliver": finishing,
    }


@pytest.mark.parametrize("phase", list(phases()))
def test_a_rank_that_falls_silent_is_told_and_then_given_up(phase):
    job = Job()
    phases()[phase](job)
    limit_s = 600 if phase == "load" else 60
    told = {now: job.handle(ev.ClockTick(float(now), {0: float(now), 1: 0.0})) for now in range(limit_s + 1)}
    said = {now: commands for now, commands in told.items() if commands}
    assert said == {
        10: [
            cmd.Noted(
                "rank 1 (on host-1, pid 101) has not answered for 10 s: its process is stopped, or its machine hangs "
                f"or cannot be reached. After {limit_s} s the job is given up."
            )
        ],
        limit_s: [cmd.SetTimer(POSTMORTEM_S)],
    }
    assert job.handle(ev.ClockTick(limit_s + 1.0, {0: 0.0, 1: 0.0})) == [], (
        "the verdict is near: nobody else is accused"
    )
    error = failure(job.handle(ev.TimedOut()))
    assert isinstance(error, WorkerLost)
    assert str(error).startswith(f"rank 1 (on host-1, pid 101) has not answered for {limit_s} s ")
    assert str(error).endswith(
        "1 other rank stopped because of it. Perhaps its process is stopped, or its machine hangs or cannot be reached."
    )


def test_a_long_step_of_a_rank_that_shows_that_it_lives_is_no_failure():
    job = Job()
    job.until_training()
    assert [job.handle(ev.ClockTick(float(now), {0: now - 2.0, 1: now - 1.0})) for now in range(10_000)] == [
        []
    ] * 10_000
    assert orders(job.all_step(0)) == ["StepDone"]


def test_a_rank_that_was_silent_and_answers_again_is_told():
    job = Job()
    job.until_training()
    for now in range(30):
        job.handle(ev.ClockTick(float(now), {0: float(now), 1: 0.0}))
    assert job.handle(ev.ClockTick(30.0, {0: 30.0, 1: 29.5})) == [
        cmd.Noted("rank 1 (on host-1, pid 101) answers again")
    ]
    assert orders(job.all_step(0)) == ["StepDone"]


def hear_nothing(job: Job, seconds: float) -> None:
    """Let both ranks say that they have not heard each other for that long."""
    for rank in (0, 1):
        job.say(rank, "alive", silent_s=[[1 - rank, seconds]] if seconds else [], stall=None)


def test_ranks_that_live_and_do_not_hear_each_other_are_told_and_then_given_up():
    job = Job()
    job.until_training()
    said = {}
    for now in range(61):
        hear_nothing(job, float(now))
        if commands := job.handle(ev.ClockTick(float(now), {0: float(now), 1: float(now)})):
            said[now] = commands
    assert said == {
        10: [
            cmd.Noted(
                "rank 1 (on host-1, pid 101) and rank 0 have heard nothing from each other for 10 s: the network "
                "between them is cut. After 60 s the job is given up."
            )
        ],
        60: [cmd.SetTimer(POSTMORTEM_S)],
    }
    (failed,) = job.handle(ev.TimedOut())
    assert isinstance(failed.error, WorkerLost)
    assert str(failed.error) == (
        "rank 1 (on host-1, pid 101) and rank 0 have heard nothing from each other for 60 s in the first steps. Every "
        "rank still runs: the network between them is cut. 1 other rank stopped because of it."
    )
    assert not failed.is_death, "what ranks printed last has nothing to do with it"


def test_a_network_that_carries_again_is_told():
    job = Job()
    job.until_training()
    hear_nothing(job, 12.0)
    job.handle(ev.ClockTick(12.0, {0: 12.0, 1: 12.0}))
    hear_nothing(job, 0.0)
    assert job.handle(ev.ClockTick(14.0, {0: 14.0, 1: 14.0})) == [
        cmd.Noted("rank 1 (on host-1, pid 101) and rank 0 hear each other again")
    ]
    assert orders(job.all_step(0)) == ["StepDone"]


def test_a_cut_that_grows_to_the_coordinator_is_not_told_as_healed():
    job = Job()
    job.until_training()
    hear_nothing(job, 12.0)
    (note,) = job.handle(ev.ClockTick(12.0, {0: 12.0, 1: 12.0}))
    assert "have heard nothing from each other" in note.text
    assert job.handle(ev.ClockTick(16.0, {0: 16.0, 1: 12.0})) == []
    assert job.handle(ev.ClockTick(19.0, {0: 19.0, 1: 12.0})) == []


def test_a_rank_that_nobody_hears_is_told_of_once_as_silent():
    job = Job()
    job.until_training()
    for now in (0.0, 5.0):
        assert job.handle(ev.ClockTick(now, {0: now, 1: 0.0})) == []
    hear_nothing(job, 10.0)
    (note,) = job.handle(ev.ClockTick(10.0, {0: 10.0, 1: 0.0}))
    assert "has not answered for 10 s" in note.text
    assert job.handle(ev.ClockTick(11.0, {0: 11.0, 1: 0.0})) == []


def test_a_rank_that_lives_and_does_not_get_on_is_told_of_once():
    job = Job()
    job.until_training()
    stall = {"doing": "read samples", "seconds": 31.2, "step": 3, "step_s": 0.02}
    stall["at"] = ["item 7 of train_data()", "train.py, line 9"]
    place = "rank 1 (on host-1, pid 101)"
    for _ in range(2):
        told = [job.say(1, "alive", silent_s=[], stall=each) for each in (stall, stall, None, None)]
        assert told == [
            [
                cmd.Noted(
                    f"{place} has read samples for 31 s in step 4: item 7 of train_data(), train.py, line 9. A "
                    "whole step took 20.0 ms before. It is waited for without end. If it hangs, kill that process: it "
                    "is then a lost rank as any other. Or press Ctrl-C twice."
                )
            ],
            [],
            [cmd.Noted(f"{place} goes on")],
            [],
        ]
    assert orders(job.all_step(0)) == ["StepDone"]


def test_a_rank_that_has_delivered_and_falls_silent_is_no_loss():
    job = Job()
    phases()["deliver"](job)
    job.finish(1)
    heard = [job.handle(ev.ClockTick(float(now), {0: float(now), 1: 0.0})) for now in range(100)]
    assert ["SetTimer" in orders(each) for each in heard] == [False] * 100
    assert orders(job.finish(0, file("model"))) == ["Finished"]


@pytest.mark.parametrize("phase", list(phases()))
def test_a_failure_is_named_once_all_have_spoken(phase):
    job = Job()
    phases()[phase](job)
    step = 2 if phase == "train" else None
    assert job.fail(1, step=step, doing=phase) == [cmd.SetTimer(POSTMORTEM_S)]
    assert job.coordinator.handle(ev.Continue()) == [], "nothing else is decided any more"
    (failed,) = job.fail(0, "rank 1 is lost", is_echo=True)
    assert isinstance(failed.error, WorkerLost)
    assert str(failed.error).startswith("rank 1 (on host-1, pid 101) failed ")
    assert ("at step 3" in str(failed.error)) == (phase == "train")
    assert "ValueError: boom" in str(failed.error)
    assert "1 other rank stopped because of it." in str(failed.error)
    assert failed.details.count("the traceback") == 2
    assert job.handle(ev.TimedOut()) == [], "a timer that comes late finds nothing to do"


@pytest.mark.parametrize("phase", list(phases()))
def test_a_death_is_named_with_the_place_of_the_rank(phase):
    job = Job()
    phases()[phase](job)
    assert job.handle(ev.Left(1, "was killed by signal 9 (SIGKILL)")) == [cmd.SetTimer(POSTMORTEM_S)]
    error = failure(job.handle(ev.TimedOut()))
    assert isinstance(error, WorkerLost)
    assert str(error).startswith("rank 1 (on host-1, pid 101) was killed by signal 9 (SIGKILL)")


def test_a_failure_of_the_only_rank_is_told_at_once():
    job = Job(JobSettings(strategy="single"))
    job.start()
    assert isinstance(failure(job.fail(0)), WorkerLost)


def test_a_rank_that_leaves_after_it_has_finished_is_no_loss():
    job = Job(JobSettings(workers=2, strategy="ring", steps=1, checkpoint_every=0))
    job.until_training()
    job.all_step(0)
    assert job.finish(1) == []
    assert job.handle(ev.Left(1, "exited with code 0")) == [cmd.LetGo(1)]
    assert isinstance(job.finish(0, file("model"))[0], cmd.Finished)


def test_a_rank_that_is_lost_while_another_has_finished_is_a_loss():
    job = Job(JobSettings(workers=2, strategy="ring", steps=1, checkpoint_every=0))
    job.until_training()
    job.all_step(0)
    job.finish(1)
    assert job.handle(ev.Left(0, "was killed by signal 9 (SIGKILL)")) == [cmd.SetTimer(POSTMORTEM_S)]
    error = failure(job.handle(ev.TimedOut()))
    assert str(error).startswith("rank 0 (on host-0, pid 100) was killed by signal 9")
