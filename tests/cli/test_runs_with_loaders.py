"""Ranks with loaders learn what ranks without them learn, and leave no process."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

DRAWING = """
from dataclasses import replace
import os
import time
import torch
import steady

LOADED_IN = os.getpid()

class Noisy(torch.utils.data.Dataset):
    def __init__(self, seed, wait_s=0.0):
        self.clean, self.wait_s = steady.load(20, seed), wait_s

    def __len__(self):
        return 20

    def __getitem__(self, index):
        assert LOADED_IN == os.getpid(), "this process shares what the script has opened"
        row, target = self.clean[index]
        time.sleep(self.wait_s)
        return row + torch.randn(row.shape), target

def program():
    return replace(steady.program(), train_data=lambda: Noisy(1), test_data=lambda: Noisy(2), batch_size=8, loaders=1)

def slow():
    return replace(program(), train_data=lambda: Noisy(1, 0.05), epochs=1000)
"""
PAUSE = threading.Event()
"""Never set: between two looks."""
RING = ("-n", "2", "--strategy", "ring", "--steps", "4")


@pytest.fixture
def script(shell):
    path = shell.folder / "drawing.py"
    path.write_text(DRAWING, encoding="utf-8")
    shell.finish_s = 100.0  # more processes than other tests have
    return path


def losses(run: Path) -> list[tuple]:
    rows = map(json.loads, (run / "history.jsonl").read_text().splitlines())
    return [(row["loss"], *row["metrics"].values()) for row in rows]


@pytest.mark.processes
def test_a_ring_with_loaders_learns_what_threads_learn_that_read_by_themselves(shell, script, nfold):
    shell.run("train", script, *RING, "--out", "loaders")
    nfold("train", script, *RING, "--out", "threads", "--debug")
    loaded, read = (losses(shell.folder / name) for name in ("loaders", "threads"))
    assert len(loaded) == 4 + 2, "steps and evaluations"
    assert [pytest.approx(row, rel=1e-5) for row in read] == loaded


@pytest.mark.processes
def test_a_loader_that_is_killed_ends_the_run_with_one_message(shell, script):
    process = shell.start("train", f"{script}:slow", "-n", "1", "--out", "run")
    history = shell.folder / "run" / "history.jsonl"
    while not (history.exists() and history.stat().st_size) and process.poll() is None:
        PAUSE.wait(0.05)
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in shell.processes()}
    (loader,) = [pid for pid, name in names.items() if name == "nfold-loader"]
    os.kill(loader, signal.SIGKILL)
    shell.finish(process).check_explained(
        "rank 0", f"loader 0 (process {loader}) was killed by signal 9", "--loaders 0"
    )
