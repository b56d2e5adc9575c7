"""Ranks stay until all that a run ends with is here: a host that is lost then costs nothing."""

from coordinated import Job, file, orders
from test_coming_and_going import CHUNKED, KILLED, lose, training, whole_at

from nfold.core.options.host_range import HostRange
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev

TOTAL = 8


def delivering() -> Job:
    """A job of three hosts whose last step is done, kept and evaluated."""
    job = training(3, CHUNKED | {"has_test": True}, hosts=HostRange(1, 4), checkpoint_every=TOTAL)
    for steps in ((0, 1, 2, 3), (4, 5), (6, 7)):
        job.all_step(*steps)
        if steps[-1] == TOTAL - 1:
            job.all_say("checkpoint", (1, 2), has_file=False)
            job.say(0, "checkpoint", file("last"), has_file=True)
        for rank in job.workers if steps[-1] != 5 else ():
            job.say(rank, "evaluated", sums={"test_loss": [3.0, 10]})
    assert [text for text in orders(job.told) if "deliver" in text or "finish" in text] == ["012 deliver"]
    return job


def evaluations(job: Job) -> list[int]:
    return [each.step for each in job.told if isinstance(each, cmd.Evaluated)]


def test_a_host_that_is_lost_once_the_model_is_here_is_told_and_the_run_ends():
    job = delivering()
    job.finish(0, file("model"))
    job.say(1, "moved", bytes=1, seconds=0.1)
    lose(job, 2)
    commands = job.handle(ev.TimedOut())
    assert orders(commands) == ["LetGo", "Departed", "01 finish"]
    assert (commands[1].turnover.lost, commands[1].next_step) == (("host-2",), TOTAL)
    job.say(0, "finished")
    (ended,) = job.say(1, "finished")
    assert (ended.model, ended.interrupted) == (file("model"), False)


def test_those_who_are_left_deliver_the_model_where_its_sender_is_lost():
    job = delivering()
    assert job.finish(1) == []
    lose(job, 0, 2)
    assert orders(job.handle(ev.TimedOut())) == ["LetGo", "12 abandon"]
    job.all_say("abandoned", (1, 2))
    job.all_say("recalled", (1, 2), states=[whole_at(TOTAL)])
    job.all_say("connected", (1, 2))
    assert orders(job.all_say("built", (1, 2), kept={}, notes=[], seconds=0.1)) == ["12 deliver"], "all else is done"
    job.finish(1, file("model"))
    (ended,) = job.finish(2)
    assert (ended.model, ended.interrupted) == (file("model"), False)
    assert evaluations(job) == [4, TOTAL]


def test_who_has_delivered_and_leaves_is_no_loss_and_who_ends_the_run_then_ends_it():
    job = delivering()
    job.finish(1)
    assert orders(job.handle(ev.Left(1, KILLED))) == ["LetGo"]
    assert orders(job.handle(ev.Interrupted(by_key=True))) == ["Noted"]
    job.finish(2)
    commands = job.deliver(0, file("model"))
    assert orders(commands) == ["02 finish"]
    assert orders(job.handle(ev.Left(0, KILLED))) == ["LetGo"], "nothing is asked of it any more"
    assert [each.interrupted for each in job.say(2, "finished")] == [False]


def test_what_was_delivered_before_a_loss_does_not_excuse_a_member_that_dies_after_it():
    job = delivering()
    lose(job, 2)
    assert orders(job.handle(ev.TimedOut())) == ["LetGo", "01 abandon"]
    job.finish(1)  # sent before it heard of the loss
    job.all_say("abandoned", (0, 1))
    job.all_say("recalled", (0, 1), states=[whole_at(TOTAL)])
    job.all_say("connected", (0, 1))
    lose(job, 1)
    job.say(0, "built", kept={}, notes=[], seconds=0.1)
    assert orders(job.handle(ev.TimedOut())) == ["LetGo", "0 abandon"], "nobody waits for what it would build"


def test_who_has_delivered_and_died_is_told_as_lost_where_others_are_lost_before_the_end():
    job = delivering()
    job.finish(1)
    job.handle(ev.Left(1, KILLED))
    lose(job, 2)
    job.handle(ev.TimedOut())
    job.say(0, "abandoned")
    job.say(0, "recalled", states=[whole_at(TOTAL)])
    (again,) = [each for each in job.told if isinstance(each, cmd.Replanned)]
    assert (again.turnover.lost, again.turnover.left) == (("host-1", "host-2"), ())
