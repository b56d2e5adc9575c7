"""Ranks as threads of this process."""

import threading

import pytest

from nfold.launch import thread_launcher
from nfold.launch.thread_launcher import ThreadLauncher

pytestmark = pytest.mark.timeout(30)


def test_how_a_thread_ended():
    launcher = ThreadLauncher(lambda rank: 10 + rank)
    for rank in range(2):
        launcher.start(rank, "", 0, "")
    assert [launcher.ended(rank, 10.0) for rank in range(2)] == ["ended with code 10", "ended with code 11"]


def test_a_thread_that_runs_has_not_ended(monkeypatch):
    monkeypatch.setattr(thread_launcher, "LEAST_GRACE_S", 0.01)
    go = threading.Event()
    launcher = ThreadLauncher(lambda _: int(not go.wait(20.0)))
    launcher.start(0, "", 0, "")
    assert launcher.ended(0, 0.0) is None
    launcher.stop(0.0)
    assert launcher.ended(0, 0.0) is None, "a thread cannot be killed"
    go.set()
    launcher.stop(10.0)
    assert launcher.ended(0, 0.0) == "ended with code 0"
    launcher.stop(10.0)


def test_members_come_and_go():
    launcher = ThreadLauncher(lambda member: member)
    for member in range(3):
        launcher.start(member, "", 0, "")
        launcher.release(member)
        launcher.release(member)
        assert launcher.ended(member, 0.0) == "was never started"
    launcher.stop(0.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_raised_ended_badly():
    def body(rank):
        raise KeyError(rank)

    launcher = ThreadLauncher(body)
    launcher.start(0, "", 0, "")
    assert launcher.ended(0, 10.0) == "ended with code 1"
