"""Compares one worker of nfold with the plain PyTorch loop, in alternation, and times the start of the command."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

import nfold
from nfold.program import ProgramSource

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this

PROGRAMS = {"digits": HERE.parents[1] / "examples" / "digits.py", "bigger CNN": HERE / "bigger.py"}
NUM_WARMUP = 5


def plain_steps_s(script: Path, num_steps: int, num_threads: int) -> list[float]:
    """Train with a plain loop and return the seconds of each step, reading its batch included."""
    program = ProgramSource.parse(str(script)).load()
    torch.set_num_threads(num_threads)
    torch.manual_seed(program.seed)
    model = program.model()
    optimizer = program.optimizer(list(model.parameters()))
    batches = _endless(DataLoader(program.train_data(), program.batch_size, shuffle=True, drop_last=True))
    model.train()
    seconds = []
    for _ in range(num_steps):
        began = time.perf_counter()
        inputs, targets = next(batches)
        optimizer.zero_grad()
        loss = program.loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - began)
    return seconds[NUM_WARMUP:]


def nfold_step_s(script: Path, num_steps: int) -> float:
    """Train with one worker and return the median seconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        run = nfold.train(script, workers=1, strategy="single", steps=num_steps, chunks=1, out=Path(folder) / "run")
        return float(run.report.step_s.p50)


def compare(script: Path, num_steps: int, num_rounds: int, num_threads: int) -> dict[str, Any]:
    """Alternate the two; the ratio is the median of each round's, so slow spells of the machine cancel."""
    plain, ours = [], []
    for _ in range(num_rounds):
        plain.append(statistics.median(plain_steps_s(script, num_steps, num_threads)))
        ours.append(nfold_step_s(script, num_steps))
    ratios = [b / a for a, b in zip(plain, ours, strict=True)]
    return {
        "plain_step_s": statistics.median(plain),
        "nfold_step_s": statistics.median(ours),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "steps": num_steps,
        "threads": num_threads,
    }


def start_s(command: list[str], repeats: int = 7) -> float:
    """Return the median wall seconds of a command."""
    return statistics.median(_timed(lambda: subprocess.run(command, check=True, capture_output=True), repeats))


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the plain loop")
    chosen = options.parse_args()
    result: dict[str, Any] = {"steps": {}, "start_s": {}}
    for name, script in PROGRAMS.items():
        row = compare(script, chosen.steps, chosen.rounds, chosen.threads)
        result["steps"][name] = row
        print(
            f"{name:12} plain {row['plain_step_s'] * 1e3:7.2f} ms  nfold {row['nfold_step_s'] * 1e3:7.2f} ms  "
            f"ratio {row['ratio']:.3f} (rounds {min(row['ratios']):.3f} to {max(row['ratios']):.3f})"
        )
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import nfold": [sys.executable, "-c", "import nfold"],
        "nfold --help": [str(Path(sys.executable).with_name("nfold")), "--help"],
    }
    for name, command in commands.items():
        result["start_s"][name] = start_s(command)
        print(f"{name:12} {result['start_s'][name]:.3f} s")
    write(result, __file__)


def _endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def _timed(action: Callable[[], object], repeats: int) -> list[float]:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    main()
