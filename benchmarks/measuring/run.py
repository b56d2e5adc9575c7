"""Compares jobs that measure with jobs that do not, turn by turn.

Two jobs that do not measure, raced against each other in the same way, say how much is noise.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this
from racing import NUM_WARMUP, Racer, nfold_racer, race, ratio  # noqa: E402

DIGITS = HERE.parents[1] / "examples" / "digits.py"
JOBS: dict[str, dict[str, Any]] = {
    "one worker": {"workers": 1, "strategy": "single"},
    "ring of two": {"workers": 2, "strategy": "ring"},
}
NUM_STEPS = 1500


def steps_s(run: Path) -> list[float]:
    """Return the seconds of each step, of the rank that took longest."""
    rows = json.loads((run / "trace.json").read_text())["parts"]
    by_step: dict[int, float] = {}
    for row in rows:
        by_step[row["step"]] = max(by_step.get(row["step"], 0.0), row["step_s"])
    return [by_step[step] for step in sorted(by_step)]


def compare(wishes: dict[str, Any], steps: int) -> dict[str, Any]:
    """Race a job that measures against one that does not, and one that does not against its like."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)

        def racer(name: str, measure: bool) -> Racer:
            common = {"chunks": 2, "steps": steps, "checkpoint_every": 0, "evaluate": False}
            return nfold_racer(DIGITS, here / name, measure=measure, **common, **wishes)

        race(racer("on", True), racer("off", False))
        race(racer("off again", False), racer("and again", False))
        on, off, again, once_more = (steps_s(here / name) for name in ("on", "off", "off again", "and again"))
    return {
        "on_step_s": statistics.median(on[NUM_WARMUP:]),
        "off_step_s": statistics.median(off[NUM_WARMUP:]),
        **ratio("", on, off),
        **ratio("off_to_itself_", again, once_more),
        "steps": steps,
    }


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=NUM_STEPS)
    options.add_argument("--dry", action="store_true", help="print only")
    chosen = options.parse_args()
    result: dict[str, Any] = {}
    for name, wishes in JOBS.items():
        row = result[name] = compare(wishes, chosen.steps)
        low, high = row["ratio_quartiles"]
        print(
            f"{name:12} on {row['on_step_s'] * 1e3:7.2f} ms  off {row['off_step_s'] * 1e3:7.2f} ms  "
            f"ratio {row['ratio']:.3f} (quartiles {low:.3f} to {high:.3f}); "
            f"off to itself {row['off_to_itself_ratio']:.3f}",
            flush=True,
        )
    if not chosen.dry:
        write(result, __file__)


if __name__ == "__main__":
    main()
