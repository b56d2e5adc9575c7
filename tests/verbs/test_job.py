"""How a job ends."""

import os

import pytest

from nfold.errors import ProgramError
from nfold.program import ProgramSource
from nfold.verbs.folder import RunFolder
from nfold.verbs.job import Job
from nfold.verbs.observer import Silent
from nfold.verbs.options import Options


class Listening(Silent):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.notes = []

    def noted(self, text):
        self.notes.append(text)


def test_what_cannot_be_removed_hides_no_failure_and_locks_nobody_out(tmp_path, monkeypatch):
    folder, observer = RunFolder.create(tmp_path / "run", ""), Listening()
    script = tmp_path / "script.py"
    script.touch()
    job = Job(ProgramSource.parse(str(script)), Options(), observer, folder=folder)

    def fail():
        raise ProgramError("the real cause")
        yield

    monkeypatch.setattr(job, "_play", fail)
    stuck = folder.path / "model.safetensors.partial"
    stuck.mkdir()  # no file, so that nobody may unlink it, root neither
    with pytest.raises(ProgramError, match="the real cause"):
        list(job.play())
    assert observer.notes == [f"note: {stuck} is half written and cannot be removed: Is a directory"]
    assert os.listdir(folder.path) == [stuck.name], "the log is gone with all else"
    again = RunFolder.open(folder.path)
    again.lock()
    again.release()
