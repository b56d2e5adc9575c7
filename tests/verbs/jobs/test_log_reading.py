"""What ranks print, read by others."""

import os
import socket
import threading
from dataclasses import replace

import pytest

from nfold.core.run_state import ListedRun
from nfold.errors import PlanError
from nfold.machine.processes import started_here
from nfold.verbs.jobs.database import user_database
from nfold.verbs.jobs.log_reading import read_logs

LOG = "[0] one\nsaid by the command\n[1 on pi-2] two\n[10] ten\n[0] \n[0] begun"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.txt").write_text(LOG)
    return tmp_path / "run"


def test_a_log_is_read_whole_or_by_rank(folder):
    assert list(read_logs(str(folder))) == LOG.split("\n")
    assert list(read_logs(str(folder), rank=0)) == ["one", "", "begun"]
    assert list(read_logs(str(folder), rank=1)) == ["two"]
    assert list(read_logs(str(folder), follows=True)) == LOG.split("\n"), "nobody writes to it"


def test_a_rank_that_printed_nothing_is_told_with_those_that_did(folder):
    with pytest.raises(PlanError, match=r"rank 2 has printed nothing: there are lines of 0, 1, 10\."):
        list(read_logs(str(folder), rank=2))
    (folder / "log.txt").write_text("")
    with pytest.raises(PlanError, match=r"rank 2 has printed nothing: nor has any other\."):
        list(read_logs(str(folder), rank=2))


def test_a_run_without_a_log_is_told(folder):
    (folder / "log.txt").unlink()
    with pytest.raises(PlanError, match=r"run has no log\.txt: no run has begun there\."):
        list(read_logs(str(folder)))


@pytest.mark.timeout(30)
def test_a_log_is_followed_until_the_run_ends(folder):
    run = ListedRun(
        folder=str(folder), script="", host=socket.gethostname(), pid=os.getpid(), started=started_here(),
        begun=1.0, heard=1.0,
    )  # fmt: skip
    run = user_database().begin(run, goes_on=False)
    (folder / "log.txt").unlink()
    seen, arrived = [], threading.Semaphore(0)

    def follow():
        for line in read_logs(str(run.number), follows=True):
            seen.append(line)
            arrived.release()

    reader = threading.Thread(target=follow)
    reader.start()
    with open(folder / "log.txt", "w") as log:
        log.write("[0] first\n[0] half")
        log.flush()
        assert arrived.acquire(timeout=10)
        assert seen == ["[0] first"]
        log.write(" a line\n[0] last")
    user_database().update(replace(run, ending="done"))
    reader.join(10)
    assert seen == ["[0] first", "[0] half a line", "[0] last"]
