"""Says before the first step whether a run can write its files: whether it may, and whether the disk has room."""

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from nfold.core.job import JobSettings
from nfold.core.text.units import size
from nfold.errors import PlanError
from nfold.runtime.control.commands import Planned
from nfold.verbs.run_folder.files import AVERAGE, BEST, CHECKPOINT, MODEL


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """The large files of a run, in bytes.

    A new file is written beside the one that it replaces.
    """

    model_bytes: int
    optimizer_bytes: int
    checkpoints: int
    """Most of them at once: 0, 1, or 2 while one replaces another."""
    keeps_best: bool
    average_bytes: int = 0
    """Averages of the weights: in each checkpoint, and in a file of their own."""

    @property
    def checkpoint_bytes(self) -> int:
        """The bytes of one checkpoint: the model, the state of its optimizer and averages of the weights."""
        return self.model_bytes + self.optimizer_bytes + self.average_bytes

    @property
    def most_bytes(self) -> int:
        """The most bytes that the files take at one time."""
        best = self.model_bytes if self.keeps_best else 0
        lasting = min(self.checkpoints, 1) * self.checkpoint_bytes + best
        return lasting + max(self.model_bytes + self.average_bytes, (self.checkpoints - 1) * self.checkpoint_bytes)

    def __str__(self) -> str:
        """What they are, with their sizes."""
        told = [f"model {size(self.model_bytes)}"]
        if self.keeps_best:
            told.append(f"best model {size(self.model_bytes)}")
        if self.average_bytes:
            told.append(f"averaged model {size(self.average_bytes)}")
        if self.checkpoints:
            beside = ", and a second one while it is written" if self.checkpoints > 1 else ""
            told.append(f"checkpoint {size(self.checkpoint_bytes)}{beside}")
        return "; ".join(told)


def check_writable(path: Path) -> None:
    """Try to write a file in a folder, or in the nearest one above it that is there; nothing of it is left.

    Raises:
        PlanError: it cannot be written to.
    """
    there = _nearest(path)
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise PlanError(
            f"cannot write to {there}, where the run keeps its files: {error.strerror}. Use another --out."
        ) from error


def files_of(planned: Planned, settings: JobSettings) -> Files:
    """Return the large files of a run that is planned."""
    profile, every = planned.known.profiles[planned.plan.threads[0]], settings.checkpoint_every
    first_due = ends_epoch = planned.epochs.next_end(planned.first_step)
    if every:
        first_due = (planned.first_step // every + 1) * every
        if settings.kept is not None:  # evaluations have a checkpoint each
            first_due = min(first_due, ends_epoch)
    is_replaced = planned.first_step > 0 or first_due < planned.total_steps
    return Files(
        model_bytes=profile.parameter_bytes,
        optimizer_bytes=profile.optimizer_bytes,
        checkpoints=0 if every == 0 else 2 if is_replaced else 1,
        keeps_best=settings.kept is not None,
        average_bytes=profile.parameter_bytes if planned.known.graph.averages_weights else 0,
    )


def check_disk(path: Path, files: Files, *, may_do_without: bool) -> None:
    """Refuse a run whose files do not fit the disk of its folder.

    Args:
        path: of the folder, which need not be there yet.
        files: of the run.
        may_do_without: whether the user may leave out checkpoints.

    Raises:
        PlanError: with the numbers.
    """
    there = _nearest(path)
    try:
        free_bytes = shutil.disk_usage(there).free
    except OSError:
        return  # nobody can say
    for name in (CHECKPOINT, MODEL, BEST, AVERAGE):
        with contextlib.suppress(OSError):
            free_bytes += (path / name).stat().st_size
    if files.most_bytes <= free_bytes:
        return
    advice = ["use another --out on a larger disk"]
    if may_do_without and replace(files, checkpoints=0).most_bytes <= free_bytes:
        advice.append("use --checkpoint-every 0, which keeps no checkpoint to go on from")
    raise PlanError(
        f"the files of the run need {size(files.most_bytes)} on the disk of {path} ({files}), and "
        f"{size(free_bytes)} are free there. Make room, or {', or '.join(advice)}."
    )


def _nearest(path: Path) -> Path:
    """Return a folder, or the nearest one above it that is there."""
    return next(each for each in (path, *path.absolute().parents) if os.path.isdir(each))
