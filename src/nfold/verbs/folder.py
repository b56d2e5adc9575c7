"""The folder that a run leaves behind: read and written in this file only."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfold.core import codec
from nfold.core.cluster import Cluster
from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.core.profile import Profile
from nfold.core.report import Report
from nfold.core.trace import Trace
from nfold.errors import CheckpointError, PlanError
from nfold.runtime.events import Known

RUNS = Path("runs")
CHECKPOINT = "checkpoint.safetensors"
MODEL = "model.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """What it takes to start a run again."""

    source: str
    """FILE.py:function."""
    workers: int
    servers: int
    strategy: str
    steps: int | None
    seed: int | None
    transport: str
    device: str
    checkpoint_every: int | None
    evaluate: bool
    total_steps: int
    steps_per_epoch: int


class RunFolder:
    """One run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, out: str | Path | None, name: str) -> "RunFolder":
        """Make the folder of a new run.

        Raises:
            PlanError: it holds a run already, or cannot be made.
        """
        path = Path(out) if out is not None else _next_free(RUNS, name)
        if (path / "job.json").exists():
            raise PlanError(f"{path} already holds a run. Use --resume {path} to go on with it, or another --out.")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlanError(f"cannot make the run folder {path}: {error.strerror}. Use another --out.") from error
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Find the folder of an earlier run.

        Raises:
            PlanError: there is none.
        """
        folder = cls(Path(path))
        if not folder.path.is_dir():
            raise PlanError(f"there is no run folder {path}")
        return folder

    @property
    def log(self) -> Path:
        """Where ranks write what they print."""
        return self.path / "log.txt"

    # Written once

    def save_known(self, known: Known, plan: Plan, record: JobRecord | None) -> None:
        """Write what a run rests on."""
        codec.save(known.graph, self.path / "graph.json")
        codec.save(known.profiles[plan.threads[0]], self.path / "profile.json")
        codec.save(known.cluster, self.path / "cluster.json")
        codec.save(plan, self.path / "plan.json")
        if record is not None:
            codec.save(record, self.path / "job.json")

    def save_outcome(self, trace: Trace, report: Report) -> None:
        """Write what became of it."""
        codec.save(trace, self.path / "trace.json")
        codec.save(report, self.path / "report.json")

    def record(self) -> JobRecord:
        """Read how the run was started.

        Raises:
            PlanError: the folder holds no run.
        """
        if not (self.path / "job.json").exists():
            raise PlanError(f"{self.path} holds no run: there is no job.json in it")
        return codec.load(JobRecord, self.path / "job.json")

    def known(self) -> Known:
        """Read what the run rests on."""
        plan = codec.load(Plan, self.path / "plan.json")
        profile = codec.load(Profile, self.path / "profile.json")
        return Known(
            graph=codec.load(ModelGraph, self.path / "graph.json"),
            profiles={profile.num_threads: profile},
            cluster=codec.load(Cluster, self.path / "cluster.json"),
            plan=plan,
        )

    def report(self) -> Report:
        """Read the report.

        Raises:
            PlanError: the run has none, because it did not end well.
        """
        if not (self.path / "report.json").exists():
            raise PlanError(
                f"{self.path} has no report.json: the run did not end. "
                f"See {self.log}, or go on with: nfold train --resume {self.path}"
            )
        return codec.load(Report, self.path / "report.json")

    # Checkpoints and the model

    def write_whole(self, name: str, data: bytes, what: str) -> None:
        """Write a file aside and put it in place in one move, so that it is never half there.

        Raises:
            CheckpointError: the disk is full, or the folder is gone; the earlier file is as it was.
        """
        temporary = self.path / f"{name}.partial"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path / name)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            kept = "The previous one is unharmed." if (self.path / name).exists() else "There is no earlier one."
            raise CheckpointError(
                f"cannot write {what} ({len(data) / 2**20:.1f} MiB) to {self.path}: {error.strerror}. {kept} "
                "Make room, then go on with --resume, or use another --out."
            ) from error

    def checkpoint(self) -> bytes:
        """Read the last checkpoint; empty if there is none."""
        path = self.path / CHECKPOINT
        return path.read_bytes() if path.exists() else b""

    # History

    def append_history(self, entries: list[dict[str, Any]]) -> None:
        """Add lines."""
        with open(self.path / "history.jsonl", "a") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)

    def history(self) -> list[dict[str, Any]]:
        """Read all lines."""
        return list(self._lines())

    def cut_history(self, last_step: int) -> list[dict[str, Any]]:
        """Drop the lines after a step: the part that a resumed run does again."""
        kept = [entry for entry in self._lines() if entry["step"] <= last_step]
        self.write_whole("history.jsonl", "".join(json.dumps(e) + "\n" for e in kept).encode(), "the history")
        return kept

    def _lines(self) -> Iterator[dict[str, Any]]:
        path = self.path / "history.jsonl"
        if not path.exists():
            return
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                return  # the line that was being written when the run was killed


def checkpoint_step(data: bytes) -> int:
    """Return after how many steps a checkpoint was taken, without reading its tensors.

    Raises:
        CheckpointError: these are not the bytes of a checkpoint.
    """
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        return int(json.loads(header["__metadata__"]["nfold"])["step"])
    except (ValueError, KeyError) as error:
        raise CheckpointError(f"the checkpoint is damaged: {error}") from error


def _next_free(parent: Path, name: str) -> Path:
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
