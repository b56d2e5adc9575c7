"""Kills jobs at random moments, resumes them, and compares every bit with an uninterrupted run."""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from nfold.runtime.checkpoint.state_file import StoredState

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import ROOT, write  # noqa: E402  a script's siblings are found only after this

SCRIPT = ROOT / "examples" / "digits.py"
STEPS, CHECKPOINT_EVERY = 120, 10
LAYOUTS = {
    "single": ("-n", "1", "--strategy", "single"),
    "ring x2": ("-n", "2", "--strategy", "ring"),
    "ps x2": ("-n", "2", "--strategy", "ps"),
    "ps x2 + 1": ("-n", "2", "--strategy", "ps", "--servers", "1"),
}
VICTIMS = ("the command", "one rank", "the command and every rank")
ENDED_S = 2.0
"""How long processes may take to end once the first one has been killed."""
TAG = "NFOLD_KILLED"
TICK = threading.Event()
"""Never set: to look again after a while."""


@dataclass(frozen=True, slots=True)
class Job:
    """A command in a folder of its own, and what it started."""

    process: "subprocess.Popen[str]"
    tag: str

    def ranks(self) -> list[int]:
        """Return the other processes of this job that still run."""
        entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [int(entry.name) for entry in entries if int(entry.name) != self.process.pid and self._is_ours(entry)]

    def _is_ours(self, entry: Path) -> bool:
        try:
            ours = f"{TAG}={self.tag}".encode() in (entry / "environ").read_bytes().split(b"\0")
            return ours and "\nState:\tZ" not in (entry / "status").read_text()
        except OSError:
            return False  # gone meanwhile


def start(*arguments: str, cwd: Path) -> Job:
    """Start `nfold ARGUMENTS`; every rank computes with one thread, so that runs planned anew have the same bits."""
    tag = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-m", "nfold.cli.main", *arguments],
        cwd=cwd,
        env={**os.environ, TAG: tag, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Job(process, tag)


def train(layout: str, out: str, cwd: Path) -> Job:
    """Start a run that is to take all steps."""
    flags = ("--steps", str(STEPS), "--checkpoint-every", str(CHECKPOINT_EVERY), "--out", out)
    return start("train", str(SCRIPT), *LAYOUTS[layout], *flags, cwd=cwd)


def finish(job: Job) -> None:
    """Wait for a job that must succeed."""
    _, said = job.process.communicate(timeout=300)
    if job.process.returncode:
        sys.exit(f"it ended with {job.process.returncode}: {said}")


def kept_step(folder: Path) -> int:
    """Return the step of a run's checkpoint; 0: none yet."""
    path = folder / "checkpoint.safetensors"
    return StoredState.open(path).step if path.exists() else 0


def kill(job: Job, folder: Path, after_step: int, delay_s: float, victim: str) -> tuple[int, int]:
    """Kill after a checkpoint and a moment.

    Returns:
        How many processes there were, and how many were left two seconds later.
    """
    while kept_step(folder) < after_step:
        if job.process.poll() is not None:
            sys.exit(f"it ended by itself: {job.process.communicate()[1]}")
        TICK.wait(0.002)
    TICK.wait(delay_s)
    ranks = job.ranks()
    chosen = {"the command": [], "one rank": [random.choice(ranks)], "the command and every rank": ranks}[victim]
    for pid in [*([] if victim == "one rank" else [job.process.pid]), *chosen]:
        os.kill(pid, signal.SIGKILL)
    job.process.communicate(timeout=60)
    ticks = round(ENDED_S / 0.01)
    while job.ranks() and ticks:
        TICK.wait(0.01)
        ticks -= 1
    return 1 + len(ranks), len(job.ranks())


def played(layout: str, times: int) -> Iterator[dict[str, Any]]:
    """Kill runs of a layout, resume each and compare."""
    with tempfile.TemporaryDirectory() as where:
        cwd = Path(where)
        finish(train(layout, "whole", cwd))
        expected = load_file(cwd / "whole" / "model.safetensors")
        for number in range(times):
            victim = VICTIMS[number % len(VICTIMS)]
            after = random.randrange(CHECKPOINT_EVERY, STEPS - CHECKPOINT_EVERY, CHECKPOINT_EVERY)
            name = f"killed-{number}"
            processes, left = kill(train(layout, name, cwd), cwd / name, after, random.uniform(0, 0.3), victim)
            step = kept_step(cwd / name)
            finish(start("train", "--resume", name, cwd=cwd))
            found = load_file(cwd / name / "model.safetensors")
            yield {
                "layout": layout,
                "victim": victim,
                "processes": processes,
                "left_after_2_s": left,
                "resumed_from_step": step,
                "equal_bits": found.keys() == expected.keys()
                and all(torch.equal(found[key], expected[key]) for key in expected),
            }


def main() -> None:
    """Play every layout, print a line for each kill, write result.json, and fail if a bit differs."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--times", type=int, default=6, help="kills of each layout")
    given = options.parse_args()
    rows = []
    for layout in LAYOUTS:
        for row in played(layout, given.times):
            rows.append(row)
            print(
                f"{row['layout']:10} {row['victim']:27} resumed from step {row['resumed_from_step']:3}  "
                f"{'equal bits' if row['equal_bits'] else 'DIFFERS'}  {row['left_after_2_s']} processes left",
                flush=True,
            )
    bad = [row for row in rows if row["left_after_2_s"] or not row["equal_bits"]]
    write({"kills": len(rows), "equal_bits": sum(row["equal_bits"] for row in rows), "rows": rows}, __file__)
    if bad:
        sys.exit(f"{len(bad)} of {len(rows)} kills left processes or other bits")


if __name__ == "__main__":
    main()
