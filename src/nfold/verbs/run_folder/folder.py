"""The folder that a run leaves behind: read and written here, and its history by `history.py`."""

import contextlib
import json
import os
import shlex
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nfold.core import codec
from nfold.core.cluster import Cluster
from nfold.core.environment import Environment
from nfold.core.graph import ModelGraph
from nfold.core.job import Known
from nfold.core.member_event import MemberEvent
from nfold.core.plan import Plan
from nfold.core.profile import Profile
from nfold.core.report import Report
from nfold.core.residency import PlacedData
from nfold.core.text.cluster_format import format_cluster
from nfold.core.trace import Trace
from nfold.errors import CheckpointError, PlanError
from nfold.runtime.checkpoint.state_file import AVERAGE_PREFIX, StoredState, header_of
from nfold.verbs.options.job_record import JobRecord, resume_command, tell_going_on
from nfold.verbs.run_folder import history, ledger_file
from nfold.verbs.run_folder.disk import check_writable
from nfold.verbs.run_folder.files import (
    AVERAGE,
    BEST,
    CHECKPOINT,
    EMULATED,
    EVENTS,
    FILES,
    HISTORY,
    LOG,
    MODEL,
    NAMES,
    PAGE,
    PLACE,
    PLANNED,
    REPORT,
    SAMPLES,
    TRACE,
    foreign,
)
from nfold.verbs.run_folder.lock import lock, unmark
from nfold.verbs.run_folder.run_place import clear_away, place
from nfold.verbs.run_folder.whole_files import MAKE_ROOM, WholeFiles

_MOST_NAMED = 5


class RunFolder(WholeFiles):
    """The files of one run."""

    def __init__(self, path: Path, *, made: Sequence[Path] = ()) -> None:
        """Args:
        path: of the folder.
        made: folders that there are only because of this run, itself first; empty: it was there before.
        """
        super().__init__(path)
        self._made = made
        self._found = [] if made or not os.path.isdir(path) else os.listdir(path)
        self._log_bytes = self.log.stat().st_size if LOG in self._found else 0
        self._unlock: Callable[[], object] | None = None

    @classmethod
    def create(cls, out: str | Path | None, name: str) -> "RunFolder":
        """Make the folder of a new run.

        Raises:
            PlanError: it holds a run already, or files of somebody else, or cannot be made.
        """
        path, made = place(out, name)
        folder = cls(path, made=made)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            clear_away(made)
            raise PlanError(f"cannot make the run folder {path}: {error.strerror}. Use another --out.") from error
        folder.lock()
        if (path / "plan.json").exists():
            try:
                going_on = folder._tell_going_on()
            finally:
                folder.release()
            raise PlanError(f"{path} already holds a run. Use another --out{going_on}.")
        if others := foreign(path):
            folder.release()
            more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
            raise PlanError(
                f"{path} is no run, and it is not empty: it holds {', '.join(others[:_MOST_NAMED])}{more}. "
                "A run wants a folder of its own. Use another --out."
            )
        folder.clear_halves()
        return folder

    @classmethod
    def try_out(cls, out: str | Path) -> None:
        """Try whether `create` would make a folder there, and leave nothing of it.

        Raises:
            PlanError: as `create` does.
        """
        folder = cls.create(out, "")
        folder.discard()
        folder.release()

    @classmethod
    def begin_or_open(cls, out: str | Path, name: str) -> tuple["RunFolder", bool]:
        """Return a folder that is ours now, and whether it holds a run; what a job that was killed had only begun to
        write down is cleared, and no run.

        Raises:
            PlanError: another job is writing there, or as `create` does.
        """
        if not os.path.isdir(out):
            return cls.create(out, name), False
        folder = cls(Path(out))
        folder.lock()
        try:
            if (folder.path / "job.json").exists() or (folder.path / HISTORY).exists():
                folder.clear_halves()
                return folder, True
            folder._clear_plans()
        except BaseException:
            folder.release()
            raise
        folder.release()
        return cls.create(out, name), False

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Find the folder of an earlier run.

        Raises:
            PlanError: there is none.
        """
        folder = cls(Path(path))
        if not os.path.isdir(path):  # of Path, this raises for a long name
            raise PlanError(f"there is no run folder {path}. A run says where it is when it begins and when it ends.")
        return folder

    # One writer at a time

    def lock(self) -> None:
        """Keep other jobs from writing here until `release`, or until this process ends.

        Raises:
            PlanError: another job is writing here, or nobody can.
        """
        check_writable(self.path)
        self._unlock = weakref.finalize(self, lock(self.path))

    def _clear_plans(self) -> None:
        """Remove what a job wrote that was killed before it said how it was started, if nothing else is here."""
        there = [name for name in PLANNED if (self.path / name).exists()]
        if set(foreign(self.path)) <= set(there):
            with contextlib.suppress(codec.CodecError):  # somebody else's file: `create` names it
                for name in there:
                    codec.load(PLANNED[name], self.path / name)
                for name in there:
                    (self.path / name).unlink()

    def _tell_going_on(self) -> str:
        """Say how the run here goes on, as far as it can: it says how it was started, and steps are left or added."""
        if not (self.path / "job.json").exists():
            return ""
        record = self.record()
        is_complete = self.last_step >= record.total_steps and (self.path / MODEL).exists()
        return tell_going_on(self.path, record, is_complete=is_complete)

    def release(self) -> None:
        """Let other jobs write here."""
        if self._unlock is not None:
            self._unlock()

    def discard(self) -> None:
        """Leave nothing of a job: no file that was not there before, no line of the log, no folder that it made."""
        with contextlib.suppress(OSError):  # it is gone already
            for name in set(FILES) - set(self._found):
                (self.path / name).unlink(missing_ok=True)
            if SAMPLES not in self._found:
                shutil.rmtree(self.path / SAMPLES, ignore_errors=True)
            if LOG in self._found:
                os.truncate(self.log, self._log_bytes)
        unmark(self.path)
        clear_away(self._made)

    @property
    def resume_command(self) -> str:
        """The command that goes on with the run."""
        return resume_command(self.path, self.record() if (self.path / "job.json").exists() else None)

    def tell_checkpoint(self, step: int, when: str = "") -> str:
        """Say how to go on from the checkpoint."""
        return f"The checkpoint of step {step} is kept; {when}go on with: {self.resume_command}"

    @property
    def log(self) -> Path:
        """The path of the file that takes what ranks print."""
        return self.path / LOG

    # Written once

    def save_known(self, known: Known, plan: Plan) -> None:
        """Write what was measured and settled for the run, and its plan.

        Raises:
            CheckpointError: as `write_whole` does.
        """
        for noun in (known.graph, known.profiles[plan.threads[0]], known.cluster, plan):
            self.save(noun)

    def save(self, noun: Any) -> None:
        """Write a noun to the file that runs keep it in.

        Raises:
            CheckpointError: as `write_whole` does.
        """
        name = NAMES[type(noun)]
        self.write_whole(name, f"{codec.dumps(noun, indent=1)}\n".encode(), name)

    def save_emulated(self, cluster: Cluster) -> None:
        """Write the cluster that was emulated, where no file of the user's says it."""
        self.write_whole(EMULATED, format_cluster(cluster).encode(), EMULATED)

    def trace(self) -> Trace:
        """Read what each rank did.

        Raises:
            PlanError: the run has none, because it could not be written.
        """
        if not (self.path / TRACE).exists():
            raise PlanError(
                f"{self.path} has no {TRACE}: it could not be written when the run ended, so there is nothing to draw. "
                f"Use nfold why {shlex.quote(str(self.path))}."
            )
        return codec.load(Trace, self.path / TRACE)

    def environment(self) -> Environment | None:
        """Read what machine and software the run was on; None: an earlier version did not write that down."""
        path = self.path / "environment.json"
        return codec.load(Environment, path) if path.exists() else None

    def record(self) -> JobRecord:
        """Read how the run was started.

        Raises:
            PlanError: the folder holds no run.
        """
        if not (self.path / "job.json").exists():
            raise PlanError(f"{self.path} holds no run that can go on: there is no job.json in it.")
        return codec.load(JobRecord, self.path / "job.json")

    def known(self) -> Known:
        """Read what was measured and settled for the run."""
        plan = codec.load(Plan, self.path / "plan.json")
        profile = codec.load(Profile, self.path / "profile.json")
        return Known(
            graph=codec.load(ModelGraph, self.path / "graph.json"),
            profiles={profile.num_threads: profile},
            cluster=codec.load(Cluster, self.path / "cluster.json"),
            plan=plan,
        )

    def placed(self) -> PlacedData | None:
        """Read where the run's data live; None: every rank reads all of them."""
        return codec.load(PlacedData, self.path / PLACE) if (self.path / PLACE).exists() else None

    def report(self) -> Report:
        """Read the report.

        Raises:
            PlanError: the run has none, because it did not end well.
        """
        if not (self.path / REPORT).exists():
            if not (self.path / "job.json").exists():
                raise PlanError(f"{self.path} holds no run: there is no {REPORT} in it.")
            record = self.record()
            if self.last_step >= record.total_steps and (self.path / MODEL).exists():
                raise PlanError(
                    f"{self.path} has no {REPORT}, although all {record.total_steps} steps are done and {MODEL} holds "
                    "the model: it could not be written, and what was measured is gone. Only a new run measures again."
                )
            raise PlanError(
                f"{self.path} has no {REPORT}: the run did not end. "
                f"See {self.log}, or go on with: {self.resume_command}"
            )
        return codec.load(Report, self.path / REPORT)

    # Checkpoints and the model

    def checkpoint(self) -> StoredState | None:
        """Find the last checkpoint; None if the run ended before it wrote one.

        Raises:
            CheckpointError: it is damaged or lost.
        """
        path = self.path / CHECKPOINT
        if path.exists():
            try:
                return StoredState.open(path)
            except CheckpointError as error:
                raise CheckpointError(f"{path}: {error}. Put a copy of it back, or begin a new run.") from error
        if self.record().has_checkpoint:
            raise CheckpointError(
                f"{path} is gone, and without it the {self.last_step} steps that were done cannot be gone on with. "
                "Put it back, or begin a new run."
            )
        return None

    def ensure_model(self, checkpoint: StoredState) -> None:
        """Write the model, and its averages, of a run that was stopped between its last checkpoint and its end.

        Raises:
            CheckpointError: as `write_whole` does.
        """
        self._ensure(MODEL, checkpoint.model, "the model")
        if checkpoint.has_averages:
            self._ensure(AVERAGE, partial(checkpoint.model, AVERAGE_PREFIX), "the averaged weights")

    def _ensure(self, name: str, pieces: Callable[[], Iterator[bytes]], what: str) -> None:
        if not self.holds(name, pieces()):  # that of a run that was stopped earlier and went on
            self.write_pieces(name, pieces(), what)

    def best(self) -> dict[str, Any] | None:
        """Read what the best model says of itself: `step`, `metric` and `value`; None where there is none.

        Raises:
            CheckpointError: it is damaged.
        """
        path = self.path / BEST
        if not path.exists():
            return None
        try:
            return header_of(path)[0].facts
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}. Put a copy of it back, or remove it.") from error

    def is_its_own(self, path: Path) -> bool:
        """Whether a path is that of a file that runs keep in their folders."""
        return path.name in (*FILES, PAGE) and path.resolve().parent == self.path.resolve()

    # History

    def append_history(self, entries: list[dict[str, Any]]) -> None:
        """Add lines to the history.

        Raises:
            CheckpointError: the disk is full, or the folder is gone; none of the lines is left, nor half of one.
        """
        try:
            history.append(self._history, entries)
        except OSError as error:
            raise CheckpointError(f"cannot write the history to {self.path}: {error.strerror}. {MAKE_ROOM}") from error

    def append_event(self, event: MemberEvent) -> None:
        """Add a row to the record of hosts that came and went, if the disk has room: the report has it too."""
        with contextlib.suppress(OSError):
            ledger_file.append(self.path / EVENTS, event)

    def events(self) -> list[MemberEvent]:
        """Return the rows of that record."""
        return ledger_file.read(self.path / EVENTS)

    def append_log(self, text: str) -> None:
        """Add lines to the log, if the disk has room: what they say is said elsewhere too."""
        with contextlib.suppress(OSError), open(self.log, "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def history(self, until: int | None = None) -> list[dict[str, Any]]:
        """Read the lines of the history up to a step; without one, all of them."""
        return [entry for entry in history.read(self._history) if until is None or entry["step"] <= until]

    @property
    def last_step(self) -> int:
        """The last step in the history; 0 if there is none."""
        return max((entry["step"] for entry in history.read(self._history)), default=0)

    def cut_history(self, last_step: int) -> None:
        """Drop the lines after a step, which a resumed run plays again."""
        lines = "".join(json.dumps(entry) + "\n" for entry in self.history(until=last_step))
        self.write_whole(HISTORY, lines.encode(), "the history")

    @property
    def _history(self) -> Path:
        return self.path / HISTORY
