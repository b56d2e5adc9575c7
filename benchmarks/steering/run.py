"""Compares a loop over steps, `--keep best:` and averages of the weights with a plain `train`, in alternation."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this

DIGITS, AVERAGING = HERE.parents[1] / "examples" / "digits.py", HERE / "averaging.py"
TRAIN = "nfold.train({script!r}, out={out!r}, **{wishes!r})"
LOOP = "[step for step in nfold.start({script!r}, out={out!r}, **{wishes!r})]"
JOBS: dict[str, tuple[str, Path, dict[str, Any]]] = {
    "train": (TRAIN, DIGITS, {}),
    "loop": (LOOP, DIGITS, {}),
    "keep": (TRAIN, DIGITS, {"keep": "best:accuracy"}),
    "averages": (TRAIN, AVERAGING, {}),
    "train again": (TRAIN, DIGITS, {}),
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "one worker": {"workers": 1, "strategy": "single", "chunks": 2},
    "ring of two": {"workers": 2, "strategy": "ring", "chunks": 2},
}
NUM_STEPS, STEPS_PER_EPOCH = 240, 12


def step_s(job: str, layout: str, steps: int, out: Path) -> float:
    """Train in a process of its own; return the seconds of a step, with its share of evaluations and checkpoints."""
    call, script, wishes = JOBS[job]
    wishes = {**wishes, **LAYOUTS[layout], "steps": steps}
    code = "import nfold; " + call.format(script=str(script), out=str(out), wishes=wishes)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    ends_s = {line["step"]: line["at_s"] for line in lines if line["metrics"]}
    return (ends_s[steps] - ends_s[STEPS_PER_EPOCH]) / (steps - STEPS_PER_EPOCH)


def compare(layout: str, rounds: int, steps: int) -> dict[str, Any]:
    """Run all jobs in turn, in another order each round."""
    found: dict[str, list[float]] = {job: [] for job in JOBS}
    names = list(JOBS)
    for number in range(rounds):
        first = number % len(names)
        for job in (*names[first:], *names[:first]):
            with tempfile.TemporaryDirectory() as folder:
                found[job].append(step_s(job, layout, steps, Path(folder) / "run"))
    plain = [statistics.mean(pair) for pair in zip(found["train"], found["train again"], strict=True)]
    rows = {job: _row(found[job], found["train"] if job == "train again" else plain) for job in names}
    return {"jobs": rows, "steps": steps, "rounds": rounds}


def _row(seconds: list[float], plain: list[float]) -> dict[str, Any]:
    ratios = [own / other for own, other in zip(seconds, plain, strict=True)]
    quartiles = statistics.quantiles(ratios, n=4)[::2] if len(ratios) > 1 else ratios * 2
    return {"step_s": statistics.median(seconds), "ratio": statistics.median(ratios), "ratio_quartiles": quartiles}


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--steps", type=int, default=NUM_STEPS)
    options.add_argument("--layouts", nargs="*", default=LAYOUTS, choices=LAYOUTS, help="the others stay as they were")
    chosen = options.parse_args()
    result = known(__file__)
    for layout in chosen.layouts:
        result[layout] = {**compare(layout, chosen.rounds, chosen.steps), **stamp()}
        for job, row in result[layout]["jobs"].items():
            low, high = row["ratio_quartiles"]
            print(f"{layout:12} {job:12} {row['step_s'] * 1e3:7.2f} ms  {row['ratio']:.3f} ({low:.3f} to {high:.3f})")
        write(result, __file__)


if __name__ == "__main__":
    main()
