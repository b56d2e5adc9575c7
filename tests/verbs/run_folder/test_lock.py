"""One job writes to a folder at a time, on whichever machines jobs are. Other machines are other names here."""

import errno
import fcntl
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest

from nfold.errors import PlanError
from nfold.verbs.run_folder import lock as locks
from nfold.verbs.run_folder.lock import WRITER, lock, this_process, unmark

BEAT_S = 0.02
NEVER_S = 1e6
PI_1 = replace(this_process(), host="pi-1", boot="one")
PI_2 = replace(this_process(), host="pi-2", boot="two")


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder of a file system whose locks hold on one machine each."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    return tmp_path


@pytest.fixture
def meanwhile(monkeypatch):
    """Let something happen in place of each pause."""
    return lambda happens: monkeypatch.setattr(locks, "_pause", lambda _: happens())


def until_touched(mark):
    """Wait for a beat, however long this machine takes for it."""
    before = os.stat(mark).st_mtime_ns
    while os.stat(mark).st_mtime_ns == before:
        threading.Event().wait(0.001)


def test_a_second_job_of_this_machine_is_told_of_the_first(tmp_path):
    let_go = lock(tmp_path)
    with pytest.raises(PlanError, match=rf"right now: process {PI_1.pid} on {this_process().host}, since "):
        lock(tmp_path)
    let_go()
    let_go()
    assert list(tmp_path.iterdir()) == []
    lock(tmp_path)()


def test_a_second_job_of_another_machine_is_told_of_the_first(shared, meanwhile):
    meanwhile(lambda: until_touched(shared / WRITER))
    let_go = lock(shared, PI_1, BEAT_S)
    with pytest.raises(PlanError, match=rf"another job is writing to {shared} right now: process {PI_1.pid} on pi-1"):
        lock(shared, PI_2, BEAT_S)
    let_go()
    lock(shared, PI_2, BEAT_S)()


@pytest.mark.parametrize("mark", [None, "half a li"])
def test_the_mark_of_a_machine_that_is_gone_keeps_nobody_out(shared, mark, meanwhile):
    pauses = []
    meanwhile(lambda: pauses.append(1))
    lock(shared, PI_1, NEVER_S)
    if mark:
        (shared / WRITER).write_text(mark)
    let_go = lock(shared, PI_2, NEVER_S)
    assert len(pauses) > locks.SILENT_BEATS
    assert '"pi-2"' in (shared / WRITER).read_text()
    let_go()


def test_of_two_that_take_over_at_once_the_last_one_writes(shared, meanwhile):
    lock(shared, PI_1, NEVER_S)
    mine = replace(PI_2, host="pi-3", boot="three")

    def other_takes_over():
        if '"pi-3"' in (shared / WRITER).read_text():
            (shared / WRITER).write_text(json.dumps(asdict(PI_2)))

    meanwhile(other_takes_over)
    with pytest.raises(PlanError, match=rf"another job is writing to {shared} right now: process {PI_2.pid} on pi-2"):
        lock(shared, mine, NEVER_S)
    assert '"pi-2"' in (shared / WRITER).read_text()


def test_a_full_disk_is_told_and_leaves_no_mark(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(PlanError, match=r"cannot write .*: No space left on device\. Use another --out"):
        lock(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_who_was_killed_on_this_machine_is_not_waited_for(tmp_path):
    (tmp_path / WRITER).write_text(json.dumps(asdict(this_process())))
    lock(tmp_path, beat_s=NEVER_S)()


def test_who_lets_go_late_leaves_the_mark_of_the_next_one(shared):
    let_go = lock(shared, PI_1, NEVER_S)
    unmark(shared)
    next_one = lock(shared, PI_2, NEVER_S)
    let_go()
    assert (shared / WRITER).exists()
    next_one()


def test_of_two_that_begin_at_once_one_writes(shared, meanwhile):
    meanwhile(lambda: until_touched(shared / WRITER))
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
