"""One job writes to a folder at a time, on whichever machines jobs are. Other machines are other names here."""

import fcntl
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest

from nfold.errors import PlanError
from nfold.verbs.run_folder.lock import WRITER, lock, this_process, unmark

BEAT_S = 0.02
PI_1 = replace(this_process(), host="pi-1", boot="one")
PI_2 = replace(this_process(), host="pi-2", boot="two")


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder of a file system whose locks hold on one machine each."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    return tmp_path


def test_a_second_job_of_this_machine_is_told_of_the_first(tmp_path):
    let_go = lock(tmp_path)
    with pytest.raises(PlanError, match=rf"right now: process {PI_1.pid} on {this_process().host}, since "):
        lock(tmp_path)
    let_go()
    let_go()
    assert list(tmp_path.iterdir()) == []
    lock(tmp_path)()


def test_a_second_job_of_another_machine_is_told_of_the_first(shared):
    let_go = lock(shared, PI_1, BEAT_S)
    with pytest.raises(PlanError, match=rf"another job is writing to {shared} right now: process {PI_1.pid} on pi-1"):
        lock(shared, PI_2, BEAT_S)
    let_go()
    lock(shared, PI_2, BEAT_S)()


@pytest.mark.parametrize("mark", [None, "half a li"])
def test_the_mark_of_a_machine_that_is_gone_keeps_nobody_out(shared, mark):
    lock(shared, PI_1, 1e6)
    if mark:
        (shared / WRITER).write_text(mark)
    let_go = lock(shared, PI_2, BEAT_S)
    assert '"pi-2"' in (shared / WRITER).read_text()
    let_go()


def test_who_was_killed_on_this_machine_is_not_waited_for(tmp_path):
    (tmp_path / WRITER).write_text(json.dumps(asdict(this_process())))
    lock(tmp_path, beat_s=1e6)()


def test_who_lets_go_late_leaves_the_mark_of_the_next_one(shared):
    let_go = lock(shared, PI_1, 1e6)
    unmark(shared)
    next_one = lock(shared, PI_2, 1e6)
    let_go()
    assert (shared / WRITER).exists()
    next_one()


def test_of_two_that_begin_at_once_one_writes(shared):
    together = threading.Barrier(2)

    def begin(me):
        together.wait()
        try:
            return lock(shared, me, BEAT_S)
        except PlanError:
            return None

    with ThreadPoolExecutor(2) as pool:
        (let_go,) = filter(None, pool.map(begin, (PI_1, PI_2)))
    let_go()
