"""What a run leaves in its folder when something goes wrong."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from nfold.errors import CheckpointError
from nfold.verbs.folder import RunFolder


class CutOff:
    """A checkpoint that ends in the middle."""

    def model(self):
        yield b"half"
        raise CheckpointError("it was cut off")


def test_half_a_model_does_not_stay(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(CheckpointError, match="it was cut off"):
        folder.ensure_model(CutOff())
    assert not list(tmp_path.iterdir())


def test_jobs_that_begin_at_once_get_a_folder_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    together = threading.Barrier(8)

    def begin(_):
        together.wait()
        return RunFolder.create(None, "digits").path.name

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(begin, range(8))) == [f"digits-{number}" for number in range(1, 9)]
