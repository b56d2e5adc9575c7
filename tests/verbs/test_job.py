"""How a job ends."""

import os
from dataclasses import replace

import pytest

from nfold.core.cluster_file import read_cluster
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


def test_what_to_type_next_names_the_file_of_the_emulated_cluster(tmp_path):
    """The user's, or, for links that a comparison has changed, the one that the run writes."""
    declared = tmp_path / "my cluster.toml"
    declared.write_text('[[node]]\nname = "n"\ncount = 2\nuplink = "100 Mbit/s"\n')
    (tmp_path / "script.py").touch()
    source, folder = ProgramSource.parse(str(tmp_path / "script.py")), RunFolder.create(tmp_path / "run", "")
    options = Options(emulate=declared, workers=2)
    changed = replace(options, emulate=read_cluster(declared), cluster_file="")

    assert Job(source, options, Silent(), folder=folder).typed.endswith(f"script.py --emulate '{declared}'")
    assert Job(source, changed, Silent(), folder=folder).typed.endswith(
        f"script.py --emulate {folder.path}/emulated.toml"
    )


def test_a_job_writes_down_a_cluster_that_no_file_of_the_users_says(tmp_path):
    (tmp_path / "c.toml").write_text('[[node]]\nname = "n"\ncount = 2\nuplink = "100 Mbit/s"\nlatency = "2 ms"\n')
    folder = RunFolder(tmp_path)
    folder.save_emulated(read_cluster(tmp_path / "c.toml"))
    assert read_cluster(tmp_path / "emulated.toml") == read_cluster(tmp_path / "c.toml")
