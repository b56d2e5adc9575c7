"""Ranks that are held stop at different steps, so nothing may follow there that makes them wait for each other."""

import pytest
from coordinated import FOUND, PACE, READY, Job, file, held, orders
from slow_steps import granted_by, play_slowly, until_probed
from test_coming_and_going import CHUNKED, HELLO, KILLED, arrived, begun, hosted, lose, prepared, released, snapshot
from test_coming_and_going import training as a_training

from nfold.core import codec
from nfold.core.job import JobSettings
from nfold.core.options.host_range import HostRange
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.replanning import Replanning
from nfold.runtime.measuring.slowness import NUM_STEPS

MANY = READY | {"chunks": 4, "num_samples": 10_000}
SECRET = {"unkept": "it has a secret"}


def training(**ready: object) -> Job:
    """Two ranks with many steps before anything is due."""
    job = Job(JobSettings(workers=2, strategy="ring", checkpoint_every=10**6), ready=MANY | ready)
    job.until_training()
    return job


def test_ranks_that_are_to_probe_are_not_held():
    """One would probe, and wait for another that waits for its gradients."""
    job = training()
    step = until_probed(job)
    assert orders(job.handle(ev.Interrupted())) == []
    told = [text for late in range(step + 1, granted_by(job)) for text in play_slowly(job, late)]
    assert told[-2:] == ["01 checkpoint", "01 deliver"]


def test_ranks_that_are_held_are_not_told_to_probe(monkeypatch):
    job = training()
    for step in range(NUM_STEPS - 1):
        play_slowly(job, step)

    def take(self, news, num_left):
        self.next = self.known if news else None
        return []

    monkeypatch.setattr(Replanning, "take", take)
    assert play_slowly(job, NUM_STEPS - 1) == ["StepDone", "01 hold"]


def test_ranks_that_were_held_for_a_newcomer_that_died_are_not_told_to_probe_before_all_have_answered():
    job = training()
    for step in range(NUM_STEPS - 1):
        play_slowly(job, step)
    job.say(2, "hello", **HELLO)
    job.say(2, "ready", **(CHUNKED | MANY))
    assert orders(job.look_ahead(job.say(2, "listening", address=["10.0.0.9", 5002])))[-1] == "01 hold"
    assert job.say(0, "holding", step=NUM_STEPS) == []
    job.handle(ev.Left(2, KILLED))
    assert play_slowly(job, NUM_STEPS - 1) == ["StepDone"]
    assert orders(job.say(1, "holding", step=NUM_STEPS + 1))[0] == f"01 until {NUM_STEPS + 1}"


def test_steps_go_on_after_a_probe_that_ended_while_a_host_was_to_leave_and_could_not():
    job = training()
    step = until_probed(job)
    released(job, 1)
    told = [text for late in range(step + 1, granted_by(job)) for text in play_slowly(job, late)]
    told += orders(job.say(0, "probed", found=codec.encode(FOUND)))
    assert "01 holdings" not in told
    assert orders(job.say(1, "probed", found=None))[-1] == "01 holdings"
    unkept = held() | {"facts": held()["facts"] | SECRET}
    job.say(0, "holdings", **unkept)
    assert orders(job.say(1, "holdings", **unkept))[-1] == "01 checkpoint"
    job.say(1, "checkpoint", has_file=False, unkept="")
    assert any(" until " in each for each in orders(job.say(0, "checkpoint", file("s"), has_file=True, **SECRET)))


def test_what_is_due_after_a_step_is_ordered_once_where_nobody_can_leave():
    job = training(num_samples=200, has_test=True)
    job.handle(ev.CheckpointWanted())
    job.all_step(0, 1, 2, 3)
    job.say(1, "checkpoint", has_file=False, unkept="")
    job.say(0, "checkpoint", file("s"), has_file=True, **SECRET)
    released(job, 1)
    last = granted_by(job)
    told = [text for step in range(4, last) for text in orders(job.all_step(step))]
    told += [text for rank in (0, 1) for text in orders(job.say(rank, "holding", step=last))]
    assert told.count("01 evaluate") == 1


def test_where_the_last_one_is_called_back_while_ranks_tell_their_state_it_is_kept():
    job = a_training(checkpoint_every=100)
    prepared(job, 2)
    released(job, 1)
    job.all_say("holding", (0, 1), step=1)
    assert orders(job.all_step(0))[-1] == "01 holdings"
    job.say(0, "holdings", **held())
    job.handle(ev.ReleaseWanted(0))
    assert orders(job.say(1, "holdings", **held())) == ["01 checkpoint"]
    job.say(1, "checkpoint", has_file=False, unkept="")
    assert "KeepCheckpoint" in orders(job.say(0, "checkpoint", file("s"), has_file=True, unkept=""))


@pytest.mark.parametrize("is_asked_first", [True, False])
def test_a_loop_gets_its_checkpoint_where_all_have_gone_back_to_an_earlier_step(is_asked_first):
    job = a_training(3, hosts=HostRange(1, 4), protect=2, lockstep=True, checkpoint_every=10**6)
    for step in range(3):
        job.handle(ev.Continue())
        job.all_step(step)
        if step == 1:
            snapshot(job, 2)
    if is_asked_first:
        assert orders(job.handle(ev.CheckpointWanted())) == ["012 checkpoint"]
        lose(job, 2, 0, 1)
    else:
        job.handle(ev.Left(2, KILLED))
        job.handle(ev.CheckpointWanted())
        for rank in (0, 1):
            job.fail(rank, "PeerLost: it is gone", kind="PeerLost", is_echo=True, doing="until")
    job.all_say("abandoned", (0, 1))
    states = [{"generation": 0, "step": 2, "told": held(), "others": [], "is_whole": False}]
    again, *_ = begun(job.all_say("recalled", (0, 1), states=states))
    assert again.next_step == 2
    job.all_say("connected", (0, 1))
    assert orders(job.all_say("built", (0, 1), kept={}, notes=[], seconds=0.1))[-2:] == ["01 until 3", "01 checkpoint"]
    job.say(1, "checkpoint", has_file=False)
    kept = job.say(0, "checkpoint", file("s"), has_file=True)
    assert [each.step for each in kept if isinstance(each, cmd.KeepCheckpoint)] == [3]


def test_no_newcomer_is_measured_while_ranks_probe():
    job = hosted(2, checkpoint_every=10**6)
    job.ready = CHUNKED | {"epochs": 1000}
    job.until_training()
    until_probed(job)
    told = orders(arrived(job, 2))
    assert not any(each.endswith(("pace", "probe")) for each in told), told
    job.say(1, "probed", found=None)
    assert "2 pace" in orders(job.say(0, "probed", found=codec.encode(FOUND)))
    assert "0 meet" in orders(job.say(2, "paced", pace=PACE))
