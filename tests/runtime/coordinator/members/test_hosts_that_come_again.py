"""A rank is lost and its host is not: where too few are left, they wait for that host, and for nobody else."""

from dataclasses import replace
from typing import Any

import pytest
from coordinated import Job, failed, file, orders
from pretended import cluster
from test_coming_and_going import CHUNKED, HELLO, KILLED, hosted, message, released, told

from nfold.errors import PlanError
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import JobPlanning

GONE = "nobody can come any more: the host that was waited for has gone"


def trained() -> Job:
    """A job of two hosts at least, where nobody else can come."""
    job = hosted(2, least=2)
    job = Job(replace(job.settings, returns_s=60.0), ready=CHUNKED, found=job.found)
    job.until_training()
    job.all_step(0, 1, 2, 3)
    job.say(1, "checkpoint", has_file=False)
    job.say(0, "checkpoint", file("epoch"), has_file=True)
    return job


def lose(job: Job, *, comes_again: bool = True) -> list[cmd.Command]:
    """Let the second rank be killed, which the first one sees."""
    job.handle(ev.Left(1, KILLED, comes_again=comes_again))
    return job.fail(0, "PeerLost: it is gone", kind="PeerLost", is_echo=True, doing="until")


def waiting() -> Job:
    """The same job, once its first rank waits for the host of the second one."""
    job = trained()
    assert orders(lose(job)) == ["LetGo", "0 abandon"]
    job.handle(ev.MemberStarted(2, replace(cluster().nodes[0], name="host-1"), "its rank was lost, and it was not"))
    job.say(0, "abandoned")
    job.say(0, "recalled", states=[])
    job.handle(ev.StateTaken(b"header"))
    job.say(0, "connected")
    assert orders(job.say(0, "built", kept={}, notes=[], seconds=0.1)) == [], "nobody trains"
    commands = job.handle(ev.ClockTick(100.0, {}))
    assert told(commands) == ["waiting for 1 host more (--nodes 2:4), 60.0 s at most: host-1 comes again"]
    assert orders(commands)[-1] == "0 checkpoint", "nobody else has it"
    job.say(0, "checkpoint", file("again"), has_file=True)
    return job


def come(job: Job) -> None:
    """Let the host's next member get ready, and take part."""
    job.say(2, "hello", **HELLO)
    job.say(2, "ready", **CHUNKED)
    commands = job.say(2, "listening", address=["10.0.0.9", 5002])
    assert orders(commands)[:2] == ["Noted", "2 pace"], "nobody trains meanwhile"
    assert orders(job.look_ahead(commands[1:])) == ["0 holdings"]
    again, connect, *_ = job.hold(0)
    assert (again.turnover.joined, again.num_lacking, connect.members) == (("host-1",), 0, (0, 2))
    assert orders(job.all_say("built", (0, 2), kept={}, notes=[], seconds=0.1))[0] == "02 until 8"


def ends(commands: list[cmd.Command]) -> bool:
    """Whether a run is kept and ends in order."""
    return told(commands) == [GONE] and orders(commands)[-2:] == ["0 checkpoint", "0 deliver"]


def test_the_others_wait_for_a_host_whose_rank_alone_is_lost_and_train_when_it_is_back():
    job = waiting()
    assert told(job.handle(ev.ClockTick(159.0, {}))) == []
    come(job)


def test_one_that_comes_in_vain_ends_the_run_when_the_time_is_over():
    job = waiting()
    assert told(job.handle(ev.ClockTick(161.0, {}))) == ["nobody has come within 60.0 s (--hosts-within)"]


@pytest.mark.parametrize("how", ["its agent ends", "its rank never says hello", "it is refused", "it ends early"])
def test_the_run_is_kept_and_ends_as_soon_as_that_host_does_not_come(how):
    job = waiting()
    if how == "its agent ends":
        job.handle(ev.HostGone("host-1"))
    elif how == "its rank never says hello":
        job.handle(ev.Left(2, KILLED))
    else:
        job.say(2, "hello", **HELLO)
        if how == "it ends early":
            job.handle(ev.Left(2, KILLED, comes_again=True))
        else:
            assert message(job.say(2, "ready", **{**CHUNKED, "num_samples": 7}), "finish")
    commands = job.handle(ev.ClockTick(101.0, {}))
    assert ends(commands)


@pytest.mark.parametrize("says_hello", [False, True])
def test_the_run_goes_on_waiting_while_another_host_gets_ready(says_hello):
    job = waiting()
    job.handle(ev.MemberStarted(3, replace(cluster().nodes[0], name="host-2"), "its place was granted"))
    if says_hello:
        job.say(3, "hello", **HELLO)
    job.handle(ev.HostGone("host-1"))
    assert told(job.handle(ev.ClockTick(101.0, {}))) == []
    job.handle(ev.Left(3, KILLED))
    assert ends(job.handle(ev.ClockTick(102.0, {})))


def parted() -> Job:
    """Three hosts, of which two train, the fewest that may: the second one has lost its rank and comes again."""
    job = hosted(3, least=2, checkpoint_every=100)
    job = Job(replace(job.settings, returns_s=60.0), ready=CHUNKED, found=job.found)
    job.until_training()
    job.handle(ev.Left(1, KILLED, comes_again=True))
    for rank in (0, 2):
        job.fail(rank, "PeerLost: it is gone", kind="PeerLost", is_echo=True, doing="until", peer=1)
    job.handle(ev.MemberStarted(3, replace(cluster().nodes[0], name="host-1"), "its rank was lost, and it was not"))
    job.all_say("abandoned", (0, 2))
    job.all_say("recalled", (0, 2), states=[])
    job.all_say("connected", (0, 2))
    assert "02 until 4" in orders(job.all_say("built", (0, 2), kept={}, notes=[], seconds=0.1))
    return job


def test_who_stays_when_another_one_leaves_waits_for_it_too():
    job = parted()
    assert told(released(job, 2)) == []
    job.all_say("holding", (0, 2), step=0)
    assert orders(job.hold(0, 2)) == ["2 abandon", "2 finish"]
    job.say(2, "finished", usage=None)
    job.handle(ev.Left(2, "exited with code 0"))
    job.say(0, "connected")
    assert orders(job.say(0, "built", kept={}, notes=[], seconds=0.1)) == [], "nobody trains"
    (waits,) = told(job.handle(ev.ClockTick(100.0, {})))
    assert waits == "waiting for 1 host more (--nodes 2:4), 60.0 s at most: host-1 comes again"


def test_one_that_is_to_leave_ends_the_run_in_order_once_nobody_comes_again():
    job = parted()
    released(job, 2)
    job.handle(ev.HostGone("host-1"))
    assert "02 deliver" in orders(job.all_say("holding", (0, 2), step=0))


def test_another_host_that_goes_is_not_the_one_that_is_waited_for():
    job = waiting()
    job.handle(ev.HostGone("pi-9"))
    assert told(job.handle(ev.ClockTick(101.0, {}))) == []


def test_the_run_ends_at_once_where_the_host_is_lost_too():
    assert failed(lose(trained(), comes_again=False))


def given_up(job: Job, how: str) -> list[cmd.Command]:
    """Let the second rank be given up while its process runs."""
    if how == "apart":
        job.fail(0, "PeerLost: reset", kind="PeerLost", is_echo=True, doing="until", peer=1)
        return job.fail(1, "PeerLost: reset", kind="PeerLost", is_echo=True, doing="until", peer=0)
    for second in range(100, 200):
        job.handle(ev.ClockTick(float(second), {0: float(second), 1: 100.0}, frozenset({0, 1})))
        if job.coordinator._postmortem.open:
            break
    return job.handle(ev.TimedOut())


@pytest.mark.parametrize("how", ["silent", "apart"])
def test_a_host_whose_rank_is_given_up_is_waited_for_as_one_whose_rank_was_killed(how):
    job = trained()
    job.handle(ev.ClockTick(99.0, {}, frozenset({0, 1})))
    assert orders(given_up(job, how)) == ["LetGo", "0 abandon"]
    job.handle(ev.Left(1, KILLED))  # by its agent, which begins another one
    job.say(0, "abandoned")
    job.say(0, "recalled", states=[])
    job.handle(ev.StateTaken(b"header"))
    job.say(0, "connected")
    assert orders(job.say(0, "built", kept={}, notes=[], seconds=0.1)) == [], "nobody trains"
    (waits,) = told(job.handle(ev.ClockTick(200.0, {})))
    assert waits.endswith("60.0 s at most: host-1 comes again")


@pytest.mark.parametrize("gone", [ev.HostGone("host-1"), ev.ClockTick(99.5, {}, frozenset({0}))], ids=str)
def test_a_host_that_does_not_come_again_is_not_waited_for(gone):
    job = trained()
    job.handle(ev.ClockTick(99.0, {}, frozenset({0, 1})))
    job.handle(gone)
    assert failed(given_up(job, "apart"))


def no_plan(self: JobPlanning, *given: Any) -> Any:
    raise PlanError("it does not fit")


def test_those_without_a_plan_wait_for_it_too(monkeypatch):
    job = trained()
    lose(job)
    monkeypatch.setattr(JobPlanning, "plan", no_plan)
    job.say(0, "abandoned")
    job.say(0, "recalled", states=[])
    job.handle(ev.StateTaken(b"header"))
    job.say(0, "abandoned")
    (waits,) = told(job.handle(ev.ClockTick(100.0, {})))
    assert waits.endswith("60.0 s at most: host-1 comes again")
    commands = job.handle(ev.HostGone("host-1"))
    assert (told(commands), orders(commands)[-1]) == ([GONE], "0 finish")
    (*_, ended) = job.say(0, "finished", usage=None, staleness={})
    assert ended == cmd.Finished(interrupted=True, is_terminated=True)


def test_one_that_goes_while_ranks_go_back_ends_a_run_without_a_plan_in_order(monkeypatch):
    job = trained()
    lose(job)
    monkeypatch.setattr(JobPlanning, "plan", no_plan)
    job.say(0, "abandoned")
    job.handle(ev.HostGone("host-1"))
    job.say(0, "recalled", states=[])
    commands = job.handle(ev.StateTaken(b"header"))
    assert (told(commands)[-1], orders(commands)[-1]) == (GONE, "0 finish")


def test_one_that_goes_while_another_one_leaves_ends_a_run_without_a_plan_from_a_checkpoint(monkeypatch):
    planned = JobPlanning.plan

    def by_two(self: JobPlanning, *given: Any) -> Any:
        if self.settings.workers == 1:
            raise PlanError("it does not fit")
        return planned(self, *given)

    job = parted()
    monkeypatch.setattr(JobPlanning, "plan", by_two)
    released(job, 2)
    job.all_say("holding", (0, 2), step=0)
    job.handle(ev.HostGone("host-1"))
    assert orders(job.hold(0, 2)) == ["02 checkpoint"]
