"""Runs whose hosts come and go, and that lose too many at once: they stop, and say how to go on."""

from pathlib import Path

import pytest
from coordinated import Job, failure
from elastic import SCRIPT, Elastic, Told
from test_coming_and_going import KILLED, training

from nfold.core.options.host_range import HostRange
from nfold.errors import Terminated, WorkerLost
from nfold.program import ProgramSource
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.verbs.ranks.thread_ranks import threads_put_back
from nfold.verbs.train import resume


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        yield


def lost_at_once(job: Job) -> BaseException:
    job.all_step(0)
    job.handle(ev.Left(1, KILLED))
    return failure(job.handle(ev.Left(0, KILLED)))


@pytest.mark.parametrize("waits_s", [0.0, 60.0])
def test_where_hosts_come_and_go_it_is_known_that_too_few_are_left(waits_s):
    error = lost_at_once(training(hosts=HostRange(1, 4), waits_s=waits_s))
    assert isinstance(error, WorkerLost)
    assert error.leaves_too_few


@pytest.mark.parametrize("wishes", [{}, {"hosts": HostRange(1, 4), "checkpoint_every": 0}])
def test_where_none_may_come_or_go_a_loss_is_a_failure(wishes):
    assert not lost_at_once(training(**wishes)).leaves_too_few


@pytest.mark.parametrize(("least", "then"), [(1, "the run goes on without it"), (2, "the job is given up")], ids=str)
def test_what_comes_of_a_silent_rank_is_told(least, then):
    job = training(hosts=HostRange(least, 4))
    told = [job.handle(ev.ClockTick(float(now), {0: float(now), 1: 0.0})) for now in range(11)]
    (noted,) = [command.text for commands in told for command in commands if isinstance(command, cmd.Noted)]
    assert noted.endswith(f" After 60 s {then}.")


def test_a_rank_that_fails_by_itself_is_a_failure():
    job = training(hosts=HostRange(1, 4))
    job.fail(0)
    assert not failure(job.fail(1)).leaves_too_few


def losing_all(tmp_path: Path, **wishes: int) -> Elastic:
    """A run of two threads, both of which are lost."""
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parents[2])))
    run = Elastic(ProgramSource.parse(f"{script}:program"), tmp_path / "run", may_lose=True, debug=True, **wishes)
    run.train(4)
    for member in (0, 1):
        run.kill(member)
    return run


def test_a_run_that_has_lost_all_hosts_stops_with_the_command_that_goes_on(tmp_path):
    run = losing_all(tmp_path, checkpoint_every=3)
    with pytest.raises(
        Terminated, match=r"The checkpoint of step 3 is kept; go on with: nfold train --resume .*run --nodes 1:4$"
    ):
        run.train(10**6)
    assert run.told.notes[-1] == "too few hosts are left to go on with"
    told = Told()
    resume(tmp_path / "run", debug=True, workers=1, steps=4, observer=told)
    assert "note: no host comes or goes any more, as they did before; --nodes 1:4 lets them" in told.notes


@pytest.mark.exhaustive
def test_a_run_that_has_lost_all_hosts_before_a_checkpoint_says_that_there_is_none(tmp_path):
    run = losing_all(tmp_path)
    with pytest.raises(WorkerLost) as caught:
        run.train(10**6)
    told = "Too few hosts are left to go on with, and there is no checkpoint: the run must begin anew."
    assert told in caught.value.__notes__
