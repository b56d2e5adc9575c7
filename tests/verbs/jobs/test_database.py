"""The list of the user's runs as a file."""

import sqlite3
import threading
from dataclasses import replace

import pytest

from nfold.core.run_state import ListedRun
from nfold.errors import RunError
from nfold.verbs.jobs.database import MOST_RUNS, RunDatabase

RUN = ListedRun(folder="/runs/a", script="a.py:program", host="n1", pid=7, started="boot:1", begun=100.0, heard=100.0)


@pytest.fixture
def database(tmp_path):
    return RunDatabase(tmp_path / "state" / "runs.sqlite3", wait_s=0.05)


def test_nothing_is_listed_before_the_first_run(database):
    assert database.runs() == []
    database.path.parent.mkdir()
    database.path.touch()
    assert database.runs() == [], "another process has just begun to make it"


def test_a_run_is_listed_as_its_command_wrote_it_down_last(database):
    listed = database.begin(RUN, goes_on=False)
    ended = replace(listed, ending="failed", cause="no room", ended=130.0, step=4, total_steps=9, loss=0.25)
    database.update(ended)
    other = database.begin(replace(RUN, folder="/runs/b", begun=200.0), goes_on=False)
    assert database.runs() == [other, ended], "the newest first"
    assert database.runs(ended.number) == [ended]


def test_a_number_is_never_given_again(database):
    first = database.begin(RUN, goes_on=False)
    database.forget(first)
    assert database.runs() == []
    assert database.begin(RUN, goes_on=False).number == first.number + 1


def test_a_run_that_goes_on_keeps_its_number_and_another_one_in_its_folder_does_not(database):
    first = database.begin(RUN, goes_on=False)
    again = database.begin(replace(RUN, pid=8, begun=300.0), goes_on=True)
    assert again.number == first.number
    elsewhere = database.begin(replace(RUN, host="n2"), goes_on=True)
    assert elsewhere.number > first.number, "a folder of that name on another host is another folder"
    anew = database.begin(RUN, goes_on=False)
    assert [run.number for run in database.runs()] == [anew.number, elsewhere.number]


def test_a_command_that_another_has_taken_over_from_changes_nothing(database):
    first = database.begin(RUN, goes_on=False)
    again = database.begin(replace(RUN, pid=8, started="boot:9"), goes_on=True)
    database.update(replace(first, ending="done"))
    assert database.runs() == [again]


def test_old_runs_make_room(database):
    database.begin(RUN, goes_on=False)
    with sqlite3.connect(database.path) as held:
        held.execute("UPDATE sqlite_sequence SET seq = ?", (MOST_RUNS,))
    held.close()
    last = database.begin(replace(RUN, folder="/runs/b"), goes_on=False)
    assert database.runs() == [last]


def test_runs_that_begin_at_once_get_a_number_each(database):
    patient = RunDatabase(database.path, wait_s=30.0)
    together, numbers = threading.Barrier(6), []

    def begin(index):
        together.wait()
        numbers.append(patient.begin(replace(RUN, folder=f"/runs/{index}"), goes_on=False).number)

    threads = [threading.Thread(target=begin, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6]


def test_a_file_that_is_held_is_not_waited_for_long(database):
    database.begin(RUN, goes_on=False)
    held = sqlite3.connect(database.path, isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    for use in (lambda: database.begin(RUN, goes_on=False), database.runs):
        with pytest.raises(RunError, match=r"runs\.sqlite3 cannot be used: database is locked"):
            use()
    held.close()


def test_a_file_of_something_else_is_refused_and_left_as_it_is(database):
    database.path.parent.mkdir()
    database.path.write_text("of another program" * 50)
    for use in (lambda: database.begin(RUN, goes_on=False), database.runs):
        with pytest.raises(RunError, match=r"cannot be used: file is not a database\. Runs .* move it away"):
            use()
    assert database.path.read_text().startswith("of another program")


def test_a_list_of_a_newer_nfold_is_refused(database):
    database.begin(RUN, goes_on=False)
    with sqlite3.connect(database.path) as newer:
        newer.execute("PRAGMA user_version = 9")
    newer.close()
    for use in (lambda: database.begin(RUN, goes_on=False), database.runs):
        with pytest.raises(RunError, match="is of version 9, and this nfold reads version 1"):
            use()


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "state").touch()
    with pytest.raises(RunError, match=r"cannot make the folder .*state"):
        RunDatabase(tmp_path / "state" / "nfold" / "runs.sqlite3").begin(RUN, goes_on=False)
