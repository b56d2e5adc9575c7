"""When what others see of a run is written."""

import threading
from dataclasses import replace

import pytest

from nfold.core.run_state import ListedRun, RunState
from nfold.verbs.jobs import publisher as publisher_module
from nfold.verbs.jobs.database import RunDatabase
from nfold.verbs.jobs.publisher import LISTED_S, Publisher
from nfold.verbs.run_folder.folder import RunFolder

pytestmark = pytest.mark.timeout(30)
RUN = ListedRun(folder="/a", script="", host="n1", pid=7, started="boot:1", begun=100.0, heard=100.0)
STATE = RunState(at=100.0, phase="training")


class Rows(RunDatabase):
    """Says when it is written to."""

    def __init__(self, path):
        super().__init__(path)
        self.written = threading.Semaphore(0)

    def begin(self, run, *, goes_on):
        listed = super().begin(run, goes_on=goes_on)
        self.written.release()
        return listed

    def update(self, run):
        super().update(run)
        self.written.release()


def at_step_1(folder):
    """A run whose row was written just before its first step, and a clock that the test sets."""
    rows, now = Rows(folder / "runs.sqlite3"), [0.0]
    publisher = Publisher(rows, RunFolder(folder), pytest.fail, clock=lambda: now[0], now=lambda: 5.0)
    publisher.begin(RUN, STATE, goes_on=False)
    assert rows.written.acquire(timeout=10)
    publisher.show(replace(RUN, step=1), STATE)
    assert not rows.written.acquire(timeout=0.05), "too early for another fsync"
    return rows, now, publisher


def test_a_row_is_written_now_and_then_and_at_the_end(tmp_path):
    rows, now, publisher = at_step_1(tmp_path)
    now[0] = LISTED_S
    publisher.show(replace(RUN, step=2), STATE)
    assert rows.written.acquire(timeout=10)
    assert [run.step for run in rows.runs()] == [2]
    publisher.end(replace(RUN, step=3, ending="done"), STATE)
    assert [(run.step, run.ending, run.heard) for run in rows.runs()] == [(3, "done", 5.0)]


def test_the_last_step_before_a_long_wait_is_listed_though_nothing_follows(tmp_path, monkeypatch):
    monkeypatch.setattr(publisher_module, "LISTED_S", 0.01)
    rows, now, publisher = at_step_1(tmp_path)
    now[0] = 1.0
    assert rows.written.acquire(timeout=10)
    assert [run.step for run in rows.runs()] == [1]
    publisher.end(RUN, STATE)


def test_a_run_with_long_steps_is_heard_all_the_same(tmp_path):
    rows, ticks = Rows(tmp_path / "runs.sqlite3"), iter(range(0, 10_000, 10))
    publisher = Publisher(
        rows, RunFolder(tmp_path), pytest.fail, clock=lambda: next(ticks), now=lambda: 5.0, beat_s=0.01
    )
    publisher.begin(RUN, STATE, goes_on=False)
    for _ in range(3):
        assert rows.written.acquire(timeout=10)
    publisher.end(RUN, STATE)


def test_without_a_home_only_the_folder_has_the_state(tmp_path):
    publisher = Publisher(None, RunFolder(tmp_path), pytest.fail)
    publisher.begin(RUN, STATE, goes_on=False)
    publisher.end(RUN, replace(STATE, phase="done"))
    publisher.forget()
    assert '"phase": "done"' in (tmp_path / "state.json").read_text()
