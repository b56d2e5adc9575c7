"""Ranks without a plan: they wait for others, on one clock, with what they have learnt in a checkpoint."""

from typing import Any

import pytest
from coordinated import Job, file, held, orders
from test_coming_and_going import KILLED, lose, prepared, released, snapshot, told, training

from nfold.core.members import Turnover
from nfold.core.options.host_range import HostRange
from nfold.errors import PlanError
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.control.spool import Arrived
from nfold.runtime.coordinator.job_planning import JobPlanning

NEEDS = "ring: 1 rank needs 11.4 GiB on host-0, which has 8.0 GiB"
HOSTS = 3
"""As many as there must be for a plan."""


@pytest.fixture(autouse=True)
def no_plan_for_few(monkeypatch):
    plan = JobPlanning.plan

    def of_enough(self: JobPlanning, *given: Any) -> Any:
        if self.settings.workers < HOSTS:
            raise PlanError(NEEDS)
        return plan(self, *given)

    monkeypatch.setattr(JobPlanning, "plan", of_enough)


def taken(step: int) -> list[dict[str, Any]]:
    """What members hold after a snapshot."""
    return [{"generation": 0, "step": step, "told": held(), "others": [], "is_whole": False}]


def stranded() -> Job:
    """A job of three hosts that has lost one after four steps, goes back to two, and has kept those."""
    job = stranding()
    assert orders(job.all_say("abandoned", (0, 1))) == []
    (noted,) = told(job.handle(ev.ClockTick(100.0, {})))
    assert noted.startswith("waiting for another host (--nodes 1:4), 60.0 s at most: nfold scale, nfold join")
    return job


def stranding(*wishes: ev.Event) -> Job:
    """The same job as its ranks are called off; with what the user wants while they train."""
    job = called_to_keep(*wishes)
    job.say(0, "kept", file("kept"), has_file=True)
    kept = job.say(1, "kept", has_file=False)
    assert (kept[0], orders(kept[1:])) == (cmd.KeepCheckpoint(2, file("kept")), ["01 abandon"])
    return job


def called_to_keep(*wishes: ev.Event) -> Job:
    """The same job as its ranks are to keep the state."""
    job = training(HOSTS, hosts=HostRange(1, 4), protect=2, waits_s=60.0)
    job.all_step(0, 1)
    snapshot(job, 2)
    job.all_step(2)
    for wish in wishes:
        job.handle(wish)
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    commands = job.all_say("recalled", (0, 1), states=taken(2))
    assert orders(commands) == ["Departed", "Noted", "01 connect"]
    assert told(commands) == [
        f"host-2 gone: there is no plan for the 2 hosts left (member 0, member 1), so nobody trains: {NEEDS}"
    ]
    assert (commands[0].turnover.lost, commands[0].next_step) == (("host-2",), 2)
    keep = job.all_say("connected", (0, 1))
    assert orders(keep) == ["0 keep", "1 keep"]
    assert keep[1].message["state"]["sources"] == [], "rank 0 has all of it"
    return job


def gone(job: Job) -> list[Turnover]:
    return [each.turnover for each in job.told if isinstance(each, cmd.Departed)]


def test_ranks_without_a_plan_go_on_where_they_were_once_another_host_makes_room():
    job = stranded()
    *_, connect, first, second, third = prepared(job, 3)
    assert orders([connect]) == ["013 connect"]
    again = next(each for each in job.told if isinstance(each, cmd.Replanned))
    assert (again.next_step, again.turnover) == (2, Turnover(joined=("member 3",)))
    job.workers = (0, 1, 3)
    assert [each.message["state"]["step"] for each in (first, second, third)] == [2, 2, 2], "from memory"
    assert "013 until 4" in orders(job.all_say("built", job.workers, kept={}, notes=[], seconds=0.1))


def test_the_file_is_what_all_go_back_to_where_a_host_is_lost_just_after_it_was_kept():
    job = stranding()
    lose(job, 1)
    job.say(0, "abandoned")
    job.handle(ev.TimedOut())
    job.say(0, "abandoned")
    assert orders(job.say(0, "recalled", states=[])) == ["TakeState"], "none is whole without the other one"
    commands = job.handle(ev.StateTaken(b"header of step 2"))
    assert [(each.next_step, each.turnover.steps_again) for each in commands if isinstance(each, cmd.Departed)] == [
        (2, 0)
    ]


@pytest.mark.parametrize("when", ["before", "in the post-mortem", "late"])
def test_a_file_that_is_kept_while_a_host_is_lost_is_removed(when, tmp_path):
    (tmp_path / "kept").write_bytes(b"state")
    sent = Arrived(tmp_path / "kept", 5)
    job = called_to_keep()
    if when == "before":
        job.say(0, "kept", sent, has_file=True)
    lose(job, 1)
    if when == "in the post-mortem":
        job.say(0, "kept", sent, has_file=True)
    job.handle(ev.TimedOut())
    if when == "late":
        job.say(0, "kept", sent, has_file=True)
    assert orders(job.say(0, "abandoned")) == ["0 recall"]
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("lost_again", [False, True])
def test_a_checkpoint_that_was_due_is_not_made_once_more_after_the_wait(lost_again):
    job = training(HOSTS, hosts=HostRange(1, 4), protect=2, waits_s=60.0, checkpoint_every=4)
    job.all_step(0, 1)
    job.all_step(2, 3)
    snapshot(job, 4)
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    job.all_say("recalled", (0, 1), states=taken(4))
    job.all_say("connected", (0, 1))
    job.say(0, "kept", file("kept"), has_file=True)
    job.say(1, "kept", has_file=False)
    job.all_say("abandoned", (0, 1))
    job.workers = (0, 1, 3)
    if lost_again:
        job.handle(ev.Left(1, KILLED))
        job.handle(ev.TimedOut())
        job.say(0, "abandoned")
        job.say(0, "recalled", states=taken(4))
        prepared(job, 4)
        job.workers = (0, 3, 4)
    prepared(job, 3)
    job.all_say("connected", job.workers)
    begun = orders(job.all_say("built", job.workers, kept={}, notes=[], seconds=0.1))
    assert [each.split(" ", 1)[1] for each in begun] == ["until 8", "checkpoint"]


def test_a_host_that_does_not_make_enough_room_waits_too_and_the_time_goes_on():
    job = stranded()
    job.handle(ev.Left(1, KILLED))
    job.handle(ev.TimedOut())
    job.say(0, "abandoned")
    assert orders(job.say(0, "recalled", states=taken(2)))[:2] == ["Departed", "Noted"], "it is in the checkpoint"
    assert [each.lost for each in gone(job)] == [("host-2",), ("host-1",)], "each once"
    assert [each.steps_again for each in gone(job)] == [1, 0]
    noted = told(prepared(job, 3))[-1]
    assert noted == f"there has come, and there is still no plan: {NEEDS}"
    assert told(job.handle(ev.ClockTick(159.0, {}))) == []
    over = job.handle(ev.ClockTick(160.0, {}))
    assert (told(over), orders(over)[-1]) == (["nobody has come within 60.0 s (--hosts-within)"], "0 finish")
    (*_, ended) = job.say(0, "finished", usage=None, staleness={})
    assert ended == cmd.Finished(interrupted=True, is_terminated=True)


def test_who_is_to_leave_while_all_wait_is_let_go():
    job = stranded()
    assert orders(job.handle(ev.ReleaseWanted(1))) == ["1 abandon", "1 finish"]
    assert orders(job.say(1, "finished", usage=None, staleness={})) == ["Departed"]
    assert gone(job)[-1] == Turnover(left=("member 1",))
    assert "0 finish" in orders(job.handle(ev.ReleaseWanted(0))), "nobody is left to wait"


def test_who_ends_the_run_while_a_member_is_let_go_is_heard():
    job = stranded()
    job.handle(ev.ReleaseWanted(1))
    assert job.handle(ev.Interrupted()) == []
    job.say(1, "abandoned")
    assert orders(job.say(1, "finished")) == ["Departed", "0 finish"]


@pytest.mark.parametrize("by_manager", [True, False])
def test_a_run_that_waits_ends_when_it_is_told_to_even_if_a_host_is_lost_then(by_manager):
    job = stranded()
    assert orders(job.handle(ev.Interrupted(by_manager=by_manager))) == ["01 finish"]
    assert orders(job.handle(ev.Left(1, KILLED))) == ["LetGo"]
    (*_, ended) = job.say(0, "finished", usage=None, staleness={})
    assert ended == cmd.Finished(interrupted=True, is_terminated=by_manager)


@pytest.mark.parametrize("wish", [ev.Interrupted(by_key=True), ev.Interrupted(by_manager=True), ev.TimeUp(9.0)])
def test_who_ends_the_run_before_a_host_is_lost_is_not_forgotten_in_the_wait(wish):
    job = stranding(wish)
    assert orders(job.all_say("abandoned", (0, 1))) == ["01 finish"], "at once: all is in the checkpoint"
    (*_, ended) = job.all_say("finished", (0, 1), usage=None, staleness={})
    by_manager, is_time_up = wish == ev.Interrupted(by_manager=True), wish == ev.TimeUp(9.0)
    assert ended == cmd.Finished(interrupted=True, is_terminated=by_manager, is_time_up=is_time_up)


def test_those_who_stay_keep_a_checkpoint_before_one_goes_without_whom_there_is_no_plan():
    job = training(HOSTS, hosts=HostRange(1, 4), protect=2, waits_s=60.0, checkpoint_every=100)
    assert orders(released(job, 2)) == ["012 hold"], "no time is lost"
    assert orders(job.all_say("holding", step=0)) == ["012 until 0", "012 holdings"]
    told_all = job.hold(0, 1, 2)
    assert orders(told_all) == ["012 checkpoint"]
    job.all_say("checkpoint", (1, 2), has_file=False)
    kept = job.say(0, "checkpoint", file("kept"), has_file=True)
    assert orders(kept) == ["KeepCheckpoint", "2 abandon", "2 finish"]
    commands = job.say(2, "finished", usage=None, staleness={})
    assert orders(commands) == ["Departed", "Noted", "01 abandon"]
    assert gone(job) == [Turnover(left=("member 2",))]
    job.all_say("abandoned", (0, 1))
    assert orders(prepared(job, 3))[-4:] == ["013 connect", "0 build", "1 build", "3 build"]


def test_where_nobody_can_come_a_run_without_a_plan_ends_at_once():
    job = training(HOSTS, hosts=HostRange(1, 4))
    job.all_step(0, 1)
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    (failed,) = job.all_say("recalled", (0, 1), states=[])
    assert str(failed.error) == NEEDS
