"""Compares steps with and without --exact, in alternation: models of 1 and 12 million weights, four ranks."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this

from nfold.verbs.run_folder.folder import RunFolder  # noqa: E402

MODELS = {"1 M": 576, "12 M": 2000}
"""Width of the layers by the number of weights: three square ones and two small."""
WAYS: dict[str, tuple[int, str]] = {"one": (1, "single"), "ring": (4, "ring"), "servers": (4, "ps")}
CHUNKS, WARM = 4, 5


def step_s(width: int, way: str, steps: int, folder: Path, *, exact: bool) -> float:
    """Train in a process of its own; return the median seconds of a step after the first few."""
    workers, strategy = WAYS[way]
    command = [
        sys.executable,
        "-m",
        "nfold",
        "train",
        str(HERE / "wide.py"),
        "-n",
        str(workers),
        "--strategy",
        strategy,
    ]
    command += ["--chunks", str(CHUNKS), "--steps", str(steps + WARM), "--checkpoint-every", "0", "--out", str(folder)]
    wishes = ["--exact"] if exact else []
    settings = os.environ | {"WIDTH": str(width), "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, *wishes], check=True, stdout=subprocess.DEVNULL, env=settings)
    steps: dict[int, float] = {}
    for part in RunFolder.open(folder).trace().parts:
        steps[part.step] = max(part.step_s, steps.get(part.step, 0.0))
    return statistics.median(seconds for step, seconds in steps.items() if step >= WARM)


def compare(model: str, way: str, rounds: int, steps: int) -> dict[str, Any]:
    """Train both in turn, the other first in each second round."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        for exact in (False, True) if number % 2 == 0 else (True, False):
            with tempfile.TemporaryDirectory() as folder:
                found[exact].append(step_s(MODELS[model], way, steps, Path(folder) / "run", exact=exact))
    ratios = [own / plain for own, plain in zip(found[True], found[False], strict=True)]
    return {
        "plain_s": statistics.median(found[False]),
        "exact_s": statistics.median(found[True]),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        **stamp(),
    }


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--steps", type=int, default=30)
    options.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    chosen = options.parse_args()
    result = known(__file__)
    for model in chosen.models:
        for way in WAYS:
            row = result.setdefault(model, {})[way] = compare(model, way, chosen.rounds, chosen.steps)
            times = f"{row['plain_s'] * 1e3:8.2f} ms without, {row['exact_s'] * 1e3:8.2f} ms with"
            print(f"{model:5} {way:8} {times}: {row['ratio']:.3f} times")
            write(result, __file__)


if __name__ == "__main__":
    main()
