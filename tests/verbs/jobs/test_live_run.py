"""What other terminals see of a run, from its beginning to how it ended."""

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from nfold.core import codec
from nfold.core.run_state import RunState
from nfold.errors import RunError, Terminated
from nfold.program import ProgramSource
from nfold.verbs.jobs.database import RunDatabase
from nfold.verbs.jobs.live_run import LiveRun
from nfold.verbs.run_folder.folder import RunFolder

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def made(tmp_path):
    """Make a run in a folder, and its list."""
    database = RunDatabase(tmp_path / "state" / "runs.sqlite3", wait_s=0.05)
    (tmp_path / "a.py").touch()

    def make(*, goes_on=False, watchers=()):
        folder = RunFolder(tmp_path / "run")
        folder.path.mkdir(exist_ok=True)
        source = ProgramSource.parse(str(tmp_path / "a.py"))
        return LiveRun(source, folder, goes_on=goes_on, database=database, watchers=watchers), database, folder.path

    return make


def play(live, *happenings, error=None, tell=pytest.fail):
    """Let things happen in a run, and then end it."""
    with live.shown(tell):
        for happening in happenings:
            live.take(happening)
        if error is not None:
            raise error


def state(folder: Path) -> RunState:
    return codec.load(RunState, folder / "state.json")


def test_a_run_is_listed_at_once_and_ends_as_done(made, happenings, tmp_path):
    live, database, folder = made()
    with live.shown(pytest.fail):
        while not database.runs():
            threading.Event().wait(0.001)
        (run,) = database.runs()
        assert (run.ending, run.pid, run.script) == ("running", os.getpid(), f"{tmp_path / 'a.py'}:program")
        assert run.folder == str(folder)
        for happening in (happenings.planned(), happenings.step_done(39)):
            live.take(happening)
    (run,) = database.runs()
    assert (run.ending, run.strategy, run.workers, run.nodes, run.step, run.loss) == ("done", "ring", 2, 2, 40, 0.5)
    assert run.ended is not None
    assert state(folder).phase == "done"


@pytest.mark.parametrize(
    ("error", "ending", "cause"),
    [
        (KeyboardInterrupt(), "stopped", ""),
        (Terminated(), "stopped", ""),
        (RunError("rank 1 died\nof old age"), "failed", "rank 1 died"),
        (ZeroDivisionError("by zero"), "failed", "ZeroDivisionError: by zero"),
    ],
)
def test_how_a_run_ended_is_told(made, happenings, error, ending, cause):
    live, database, folder = made()
    with pytest.raises(type(error)):
        play(live, happenings.planned(), happenings.step_done(3), error=error)
    (run,) = database.runs()
    assert (run.ending, run.cause, run.step) == (ending, cause, 4)
    assert state(folder).phase == ending


def test_a_loop_that_is_left_stops_its_run(made, happenings):
    live, database, _ = made()

    def loop():
        with live.shown(pytest.fail):
            live.take(happenings.planned())
            yield

    steps = loop()
    next(steps)
    steps.close()
    assert database.runs()[0].ending == "stopped"


def test_a_run_that_cannot_go_on_leaves_what_is_listed_of_it(made, happenings):
    live, database, folder = made()
    play(live, happenings.planned(), happenings.step_done(9))
    before, written = database.runs(), state(folder)
    again = made(goes_on=True)[0]
    with pytest.raises(RunError):
        play(again, happenings.planned(first_step=10), error=RunError("another data set"))
    again.forget()
    assert (database.runs(), state(folder)) == (before, written)
    play(made(goes_on=True)[0], happenings.planned(first_step=10), happenings.step_done(10))
    (run,) = database.runs()
    assert (run.number, run.step, run.ending) == (before[0].number, 11, "stopped")


def test_a_run_of_which_nothing_is_left_is_not_listed(made):
    live, database, _ = made()
    with pytest.raises(RunError):
        play(live, error=RunError("no such script"))
    live.forget()
    assert database.runs() == []


def test_a_list_that_cannot_be_written_is_told_once_and_ends_no_run(made, happenings):
    live, database, folder = made()
    database.path.parent.mkdir()
    database.path.write_text("of another program" * 50)
    notes = []
    play(live, happenings.planned(), happenings.step_done(39), tell=notes.append)
    live.forget()
    (note,) = notes
    assert note.startswith("note: nfold ps may not show this run as it is: the list of runs ")
    assert "file is not a database" in note
    assert state(folder).step == 40


def test_a_list_that_is_held_for_a_while_is_written_later(made, happenings):
    live, database, _ = made()
    database.path.parent.mkdir()
    held = sqlite3.connect(database.path, isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    told = threading.Event()
    with live.shown(lambda note: told.set()):
        assert told.wait(10)
        held.close()
    assert [run.ending for run in database.runs()] == ["stopped"]


def test_a_folder_that_is_gone_is_told_once(made, happenings):
    live, database, folder = made()
    notes = []
    with live.shown(notes.append):
        while not (folder / "state.json").exists():
            threading.Event().wait(0.001)
        (folder / "state.json").unlink()
        folder.rmdir()
        live.take(happenings.planned())
    assert len(notes) == 1
    assert notes[0].startswith("note: nfold top cannot show this run: cannot write ")
    assert database.runs()[0].ending == "stopped"


class Watching:
    def __init__(self):
        self.taken, self.notes, self.states = [], [], []
        self.take, self.noted, self.show = self.taken.append, self.notes.append, self.states.append


def test_who_watches_a_run_that_goes_on_sees_it_before_its_first_step_and_how_it_ends(made, happenings):
    watcher = Watching()
    live, _, folder = made(goes_on=True, watchers=[watcher])
    planned = happenings.planned(first_step=10)
    play(live, planned)
    live.noted("told")
    assert (watcher.taken, watcher.notes) == ([planned], ["told"])
    assert [(state.phase, state.step) for state in watcher.states] == [("building", 10), ("stopped", 10)]
    assert not (folder / "state.json").exists()
