"""Which run is meant, and what became of it."""

import os
import socket
from dataclasses import replace

import pytest

from nfold.core.run_state import ListedRun
from nfold.errors import PlanError
from nfold.machine.processes import started_here
from nfold.verbs.jobs.database import user_database
from nfold.verbs.jobs.run_list import SILENT_S, all_runs, as_seen, find_folder, find_reported, find_run, find_running

RUN = ListedRun(folder="/a", script="a.py:program", host="n1", pid=7, started="boot:1", begun=100.0, heard=160.0)


def test_a_run_whose_process_is_gone_is_lost_even_if_its_number_is_anothers():
    def seen(process):
        return as_seen(RUN, host="n1", now=1000.0, look={7: process}.get)

    assert seen("boot:1") == RUN
    lost = replace(RUN, ending="lost", ended=160.0)
    assert seen(None) == lost
    assert seen("boot:2") == lost


def test_of_another_host_only_silence_is_known():
    def seen(run, now):
        return as_seen(run, host="n2", now=now, look=lambda pid: pytest.fail("its numbers mean nothing here"))

    assert seen(RUN, 160.0 + SILENT_S) == RUN
    assert seen(RUN, 161.0 + SILENT_S).ending == "silent"
    assert seen(replace(RUN, ending="done"), 1e9).ending == "done"


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """List runs of this process."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def begin(name, **what):
        (tmp_path / name).mkdir()
        here = {"folder": str(tmp_path / name), "host": socket.gethostname()}
        run = replace(RUN, pid=os.getpid(), started=started_here(), **here | what)
        return user_database().begin(run, goes_on=False)

    return begin


def test_a_run_is_named_by_number_or_folder_and_is_the_newest_if_it_is_not(listed, tmp_path):
    first = listed("first", begun=1.0)
    second = listed("second", begun=2.0, ending="done")
    assert all_runs() == [second, first]
    assert find_run(str(first.number)).listed == first
    assert find_run("first").listed == find_run(str(tmp_path / "first")).listed == first
    assert find_run(None).listed == second
    assert find_run(None, prefers_running=True).listed == first
    assert find_running(None) == first
    assert find_folder("second").as_posix() == "second", "which need not be listed"
    (tmp_path / "third").mkdir()
    assert find_run("third").listed is None


def test_a_wrong_name_says_what_there_is(listed, tmp_path):
    with pytest.raises(PlanError, match="no run is listed yet"):
        find_run(None)
    with pytest.raises(PlanError, match=r"no run goes on\. No run is listed\."):
        find_running(None)
    run = listed("first")
    there = rf" Listed are {run.number} \(running, .*first\): nfold ps\."
    (tmp_path / "99").mkdir()
    with pytest.raises(PlanError, match=rf"there is no run 99\.{there} A folder of that name is \./99\."):
        find_run("99")
    with pytest.raises(PlanError, match=rf"there is no run folder nowhere\.{there}"):
        find_run("nowhere")
    with pytest.raises(PlanError, match=rf"\./99 is not listed as a run of yours\.{there}"):
        find_running("./99")
    other = listed("second")
    with pytest.raises(
        PlanError, match=rf"several runs go on: say which one\. Listed are {other.number} .*{run.number}"
    ):
        find_running(None)


def test_a_run_of_another_host_is_not_looked_for_here(listed, tmp_path):
    run = listed("first", host="n7")
    os.rmdir(tmp_path / "first")
    for look in (find_folder, lambda named: find_run(named).state()):
        with pytest.raises(PlanError, match=rf"run {run.number} lies on n7, in .*first\. Ask there\."):
            look(str(run.number))


def test_a_folder_without_a_state_is_told(listed):
    run = listed("first")
    with pytest.raises(PlanError, match=r"first holds no state\.json"):
        find_run(str(run.number)).state()


def test_a_report_comes_at_the_end(listed, tmp_path):
    run = listed("first")
    for named in (None, str(run.number)):
        with pytest.raises(PlanError, match=rf"run {run.number} goes on, .*: nfold top {run.number}$"):
            find_reported(named)
    assert find_reported("first").as_posix() == "first", "the folder says itself what it lacks"
    (tmp_path / "first" / "report.json").touch()
    assert find_reported(None) == tmp_path / "first"
