"""Whether a run can write its files is said before its first step."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nfold.core.job import JobSettings
from nfold.errors import PlanError
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.verbs.run_folder.disk import Files, check_disk, check_writable, files_of
from nfold.verbs.run_folder.files import CHECKPOINT

MB = 1_000_000
FILES = Files(model_bytes=10 * MB, optimizer_bytes=20 * MB, checkpoints=2, keeps_best=False)


@pytest.fixture
def free(monkeypatch):
    def set_to(num_bytes):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=num_bytes))

    return set_to


@pytest.mark.parametrize(
    ("checkpoints", "keeps_best", "most"),
    [(0, False, 10), (1, False, 40), (2, False, 60), (0, True, 20), (1, True, 50), (2, True, 70)],
)
def test_what_the_files_of_a_run_take_at_once(checkpoints, keeps_best, most):
    assert replace(FILES, checkpoints=checkpoints, keeps_best=keeps_best).most_bytes == most * MB


@pytest.mark.parametrize(("checkpoints", "most"), [(0, 20), (1, 60), (2, 80)])
def test_averages_are_in_checkpoints_and_a_file_of_their_own(checkpoints, most):
    assert replace(FILES, checkpoints=checkpoints, average_bytes=10 * MB).most_bytes == most * MB


def test_a_disk_that_is_too_small_is_refused_with_the_numbers_and_what_would_do(tmp_path, free):
    free(59 * MB)
    with pytest.raises(PlanError) as caught:
        check_disk(tmp_path / "not" / "there", FILES, may_do_without=True)
    told = str(caught.value)
    assert all(part in told for part in ("need 57.2 MiB", "checkpoint 28.6 MiB, and a second one", "56.3 MiB are free"))
    assert "--checkpoint-every 0" in told
    free(60 * MB)
    check_disk(tmp_path, FILES, may_do_without=True)


@pytest.mark.parametrize(("free_bytes", "may"), [(59 * MB, False), (9 * MB, True)])
def test_leaving_checkpoints_out_is_advised_only_where_it_helps(tmp_path, free, free_bytes, may):
    free(free_bytes)
    with pytest.raises(PlanError) as caught:
        check_disk(tmp_path, FILES, may_do_without=may)
    assert "--checkpoint-every" not in str(caught.value)


def test_files_that_are_replaced_are_room(tmp_path, free):
    (tmp_path / CHECKPOINT).write_bytes(bytes(MB))
    free(59 * MB)
    check_disk(tmp_path, FILES, may_do_without=True)


@pytest.mark.parametrize(
    ("every", "keep", "first", "total", "checkpoints"),
    [
        *[(None, None, 0, 8, 1), (None, None, 0, 9, 2), (3, None, 0, 3, 1), (3, None, 0, 4, 2), (0, None, 0, 9, 0)],
        *[(9, None, 0, 9, 1), (9, "best:f1", 0, 9, 2), (None, None, 4, 6, 2)],
    ],
)
def test_a_checkpoint_is_written_beside_the_one_before_it(every, keep, first, total, checkpoints):
    profile = SimpleNamespace(parameter_bytes=10, optimizer_bytes=20)
    planned = SimpleNamespace(
        known=SimpleNamespace(profiles={1: profile}, graph=SimpleNamespace(averages_weights=first == 4)),
        plan=SimpleNamespace(threads=(1,)),
        epochs=EpochSteps.even(8),
        first_step=first,
        total_steps=total,
    )
    found = files_of(planned, JobSettings(checkpoint_every=every, keep=keep))
    assert found == Files(
        model_bytes=10,
        optimizer_bytes=20,
        checkpoints=checkpoints,
        keeps_best=keep is not None,
        average_bytes=10 if first == 4 else 0,
    )


def test_a_folder_that_is_yet_to_be_made_is_looked_at_where_it_will_be(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    with pytest.raises(PlanError, match=r"cannot write to /proc/self, where the run keeps its files"):
        check_writable(type(tmp_path)("/proc/self/a/b"))
