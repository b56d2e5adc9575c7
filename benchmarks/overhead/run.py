"""Compares one worker of nfold with the plain PyTorch loop, turn by turn, and times the start of the command."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this
from racing import Racer, line, nfold_racer, race, verdict  # noqa: E402


@dataclass(frozen=True, kw_only=True, slots=True)
class Contest:
    """What is raced."""

    script: Path
    steps: int
    warm_up: int
    """Of these, left out."""
    races: int


PROGRAMS = {
    "digits": Contest(script=HERE.parents[1] / "examples" / "digits.py", steps=270, warm_up=20, races=9),
    "bigger CNN": Contest(script=HERE / "bigger.py", steps=15, warm_up=3, races=5),
}
ONE_WORKER = {"workers": 1, "strategy": "single", "chunks": 1, "checkpoint_every": 0, "evaluate": False}


def plain_racer(script: Path, steps: int, num_threads: int, out: Path) -> Racer:
    """Start the plain loop in a process."""
    command = [sys.executable, str(HERE.parent / "plain_loop.py"), str(script), str(steps), str(num_threads), str(out)]
    return Racer(command, out.with_suffix(".begun").exists)


def compare(contest: Contest, num_threads: int) -> dict[str, Any]:
    """Race nfold against two plain loops, several times."""
    races = []
    for _ in range(contest.races):
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            race(
                plain_racer(contest.script, contest.steps, num_threads, here / "a"),
                nfold_racer(contest.script, here / "run", steps=contest.steps, **ONE_WORKER),
                plain_racer(contest.script, contest.steps, num_threads, here / "b"),
            )
            once, again = (json.loads((here / name).read_text()) for name in "ab")
            rows = json.loads((here / "run" / "trace.json").read_text())["parts"]
            own_threads = json.loads((here / "run" / "plan.json").read_text())["threads"][0]
        races.append(([row["step_s"] for row in rows], once, again))
    return {
        **verdict(races, contest.warm_up),
        "steps": contest.steps,
        "threads": num_threads,
        "nfold_threads": own_threads,
    }


def start_s(command: list[str], repeats: int = 7) -> float:
    """Return the median wall seconds of a command."""
    return statistics.median(_timed(lambda: subprocess.run(command, check=True, capture_output=True), repeats))


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--threads", type=int, default=1, help="of the plain loop, and at most of nfold, which may take fewer"
    )
    chosen = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(chosen.threads)
    # The same cores for both: of two virtual ones, one may be several per cent slower than the other for minutes.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.threads])
    result: dict[str, Any] = {"steps": {}, "start_s": {}}
    for name, contest in PROGRAMS.items():
        row = result["steps"][name] = compare(contest, chosen.threads)
        print(line(name, "nfold", "plain", row), flush=True)
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import nfold": [sys.executable, "-c", "import nfold"],
        "nfold --help": [str(Path(sys.executable).with_name("nfold")), "--help"],
    }
    for name, command in commands.items():
        result["start_s"][name] = start_s(command)
        print(f"{name:12} {result['start_s'][name]:.3f} s")
    write(result, __file__)


def _timed(action: Callable[[], object], repeats: int) -> list[float]:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    main()
