"""A run of another terminal is asked to end."""

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nfold.core.run_state import ListedRun
from nfold.errors import PlanError, RunError
from nfold.machine.processes import started
from nfold.verbs.jobs.database import user_database
from nfold.verbs.jobs.run_list import all_runs
from nfold.verbs.jobs.run_process import RunProcess
from nfold.verbs.jobs.stop_run import stop
from nfold.verbs.run_folder.lock import lock

pytestmark = pytest.mark.timeout(30)
HEARS = "import signal, sys\nsignal.signal(signal.SIGINT, lambda *_: sys.exit())\nprint('there', flush=True)\ninput()"
DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('there', flush=True)\ninput()"


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """List a run whose process runs some code; all are gone after the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    processes = []

    def begin(code, **what):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        processes.append(subprocess.Popen([sys.executable, "-c", code], **pipes))
        assert processes[-1].stdout.readline() == b"there\n"
        run = ListedRun(
            folder=str(tmp_path), script="a.py:program", host=socket.gethostname(), pid=processes[-1].pid,
            started=started(processes[-1].pid), begun=1.0, heard=1.0, step=3, total_steps=9,
        )  # fmt: skip
        return user_database().begin(replace(run, **what), goes_on=False), processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def test_a_process_that_hears_the_request_ends(begun):
    run, process = begun(HEARS, script="")
    assert stop(None) == f"run {run.number} is lost: 3 of 9 steps are done.", "it says no last word"
    assert process.wait() == 0
    ended = f"run {run.number} has ended already: lost."
    assert stop(str(run.number)) == ended
    let_go = lock(Path(run.folder))
    with pytest.raises(PlanError, match=f"{run.folder} is about to be gone on with by process {os.getpid()} on "):
        stop(str(run.number))
    let_go()
    (Path(run.folder) / "held.json").touch()
    assert stop(str(run.number)).startswith(f"{ended} Its hosts may hold for a while: nfold resume {run.number} goes")


def test_a_process_that_does_not_end_is_told_with_what_to_type(begun):
    run, process = begun(DEAF)
    with pytest.raises(RunError, match=rf"has not within 0\.01 s.* kill -INT {run.pid}$"):
        stop(str(run.number), wait_s=0.01)
    assert process.poll() is None


def test_a_number_that_is_anothers_now_is_not_signalled(begun):
    run, process = begun(HEARS, started="boot:1")
    assert [each.ending for each in all_runs()] == ["lost"]
    with RunProcess(run) as stranger:
        assert not stranger.interrupt()
        assert stranger.has_ended(10.0)
    assert process.poll() is None


def test_a_run_of_another_host_is_not_signalled(begun):
    run, process = begun(HEARS, host="n7", heard=9e9)
    with pytest.raises(PlanError, match=rf"runs on n7, and this is .*Type: ssh n7 nfold stop {run.number}$"):
        stop(str(run.number))
    assert process.poll() is None


def test_a_run_may_end_and_its_process_go_on(begun):
    run, process = begun(DEAF)
    with RunProcess(run) as watched:
        assert not watched.has_ended(0.0)
        user_database().update(replace(run, ending="stopped", ended=2.0))
        assert watched.has_ended(10.0)
    assert process.poll() is None


def test_a_run_that_had_not_begun_is_kept_by_nobody(begun):
    run, process = begun(HEARS)
    user_database().forget(run)
    with RunProcess(run) as watched:
        assert watched.interrupt()
        assert watched.has_ended(10.0)
    os.kill(process.pid, signal.SIGKILL)
