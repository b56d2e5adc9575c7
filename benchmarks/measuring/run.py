"""Compares jobs that measure with jobs that do not, turn by turn."""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this
from racing import Racer, line, nfold_racer, race, verdict  # noqa: E402

DIGITS = HERE.parents[1] / "examples" / "digits.py"
JOBS: dict[str, dict[str, Any]] = {
    "one worker": {"workers": 1, "strategy": "single", "chunks": 2},
    "ring of two": {"workers": 2, "strategy": "ring", "chunks": 2},
    "ring of four": {"workers": 4, "strategy": "ring", "chunks": 4},
    "asynchronous, two": {"workers": 2, "strategy": "ps-async", "chunks": 2},
}
NUM_STEPS, NUM_WARMUP = 270, 20


def steps_s(run: Path) -> list[float]:
    """Return the seconds of each step, of the rank that took longest."""
    rows = json.loads((run / "trace.json").read_text())["parts"]
    by_step: dict[int, float] = {}
    for row in rows:
        by_step[row["step"]] = max(by_step.get(row["step"], 0.0), row["step_s"])
    return [by_step[step] for step in sorted(by_step)]


def compare(wishes: dict[str, Any], races: int) -> dict[str, Any]:
    """Race a job that measures against two that do not, several times."""
    found = []
    for _ in range(races):
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)

            def racer(name: str, measure: bool, here: Path = here) -> Racer:
                common = {"steps": NUM_STEPS, "checkpoint_every": 0, "evaluate": False}
                return nfold_racer(DIGITS, here / name, measure=measure, **common, **wishes)

            race(racer("off", False), racer("on", True), racer("off again", False))
            on, off, again = (steps_s(here / name) for name in ("on", "off", "off again"))
        found.append((on, off, again))
    return {**verdict(found, NUM_WARMUP), "steps": NUM_STEPS}


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--races", type=int, default=9)
    options.add_argument("--jobs", nargs="*", default=JOBS, choices=JOBS, help="the others stay as they were")
    chosen = options.parse_args()
    result = known(__file__)
    for name in chosen.jobs:
        row = result[name] = {**compare(JOBS[name], chosen.races), **stamp()}
        print(line(name, "on", "off", row), flush=True)
        write(result, __file__)


if __name__ == "__main__":
    main()
