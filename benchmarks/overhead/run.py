"""Compares one worker of nfold with the plain PyTorch loop, turn by turn, and times the start of the command.

The plain loop against itself, taken the same way, says how much is noise.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this
from racing import NUM_WARMUP, Racer, nfold_racer, race, ratio  # noqa: E402

PROGRAMS = {
    "digits": (HERE.parents[1] / "examples" / "digits.py", 1500),
    "bigger CNN": (HERE / "bigger.py", 80),
}
"""Script and steps."""
ONE_WORKER = {"workers": 1, "strategy": "single", "chunks": 1, "checkpoint_every": 0, "evaluate": False}


def plain_racer(script: Path, steps: int, num_threads: int, out: Path) -> Racer:
    """Start the plain loop in a process."""
    command = [sys.executable, str(HERE / "plain.py"), str(script), str(steps), str(num_threads), str(out)]
    return Racer(command, out.with_suffix(".begun").exists)


def compare(script: Path, steps: int, num_threads: int) -> dict[str, Any]:
    """Race nfold against the plain loop, and the plain loop against itself."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        race(
            plain_racer(script, steps, num_threads, here / "a"),
            nfold_racer(script, here / "run", steps=steps, **ONE_WORKER),
        )
        race(plain_racer(script, steps, num_threads, here / "b"), plain_racer(script, steps, num_threads, here / "c"))
        plain, once, again = (json.loads((here / name).read_text()) for name in "abc")
        rows = json.loads((here / "run" / "trace.json").read_text())["parts"]
        own_threads = json.loads((here / "run" / "plan.json").read_text())["threads"][0]
    steps_s = [row["step_s"] for row in rows]
    return {
        "plain_step_s": statistics.median(plain[NUM_WARMUP:]),
        "nfold_step_s": statistics.median(steps_s[NUM_WARMUP:]),
        **ratio("", steps_s, plain),
        **ratio("plain_to_itself_", again, once),
        "steps": steps,
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
    for name, (script, steps) in PROGRAMS.items():
        row = compare(script, steps, chosen.threads)
        result["steps"][name] = row
        low, high = row["ratio_quartiles"]
        print(
            f"{name:12} plain {row['plain_step_s'] * 1e3:7.2f} ms  nfold {row['nfold_step_s'] * 1e3:7.2f} ms  "
            f"ratio {row['ratio']:.3f} (quartiles {low:.3f} to {high:.3f}); "
            f"plain to itself {row['plain_to_itself_ratio']:.3f}",
            flush=True,
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


def _timed(action: Callable[[], object], repeats: int) -> list[float]:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    main()
