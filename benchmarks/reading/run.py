"""Compares one thread that reads with two loaders, and with a plain loop over DataLoader(num_workers=2)."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from environment import write  # noqa: E402  a script's siblings are found only after this
from pictures import FOLDER, NUM_FILES, make  # noqa: E402

WARM_UP = 10
"""Steps left out, in which processes start and read ahead."""
ALONE = {"workers": 1, "strategy": "single", "chunks": 1, "checkpoint_every": 0}
STARTS = (0, 2)
PAIRS = {
    "two loaders / one thread": ("nfold, two loaders", "nfold, one thread"),
    "two loaders / DataLoader(num_workers=2)": ("nfold, two loaders", "plain, DataLoader(num_workers=2)"),
    "one thread / DataLoader(num_workers=0)": ("nfold, one thread", "plain, DataLoader(num_workers=0)"),
}


def plain(workers: int, steps: int, here: Path) -> dict[str, Any]:
    """Run the plain loop."""
    out = here / "seconds.json"
    given = [str(HERE / "pictures.py"), str(steps), "1", str(out), str(workers)]
    subprocess.run([sys.executable, str(HERE.parent / "plain_loop.py"), *given], check=True)
    return {"steps_s": json.loads(out.read_text())}


def spread(loaders: int, steps: int, here: Path) -> dict[str, Any]:
    """Run nfold on one worker."""
    out = here / f"run-{loaders}"
    call = f"import nfold; nfold.train({str(HERE / 'pictures.py')!r}, out={str(out)!r}, **{ALONE!r}, "
    subprocess.run([sys.executable, "-c", f"{call}loaders={loaders}, steps={steps})"], check=True)
    plan, rows = (json.loads((out / name).read_text()) for name in ("plan.json", "trace.json"))
    weights = (out / "model.safetensors").read_bytes()
    return {
        "steps_s": [row["step_s"] for row in rows["parts"]],
        "predicted_s": plan["predicted"]["step_s"],
        "weights": weights,
    }


def start_s(loaders: int, here: Path) -> float:
    """Return the seconds from the command to the end of the first step of nfold on one worker."""
    call = f"nfold.start({str(HERE / 'pictures.py')!r}, out={str(here / 'run')!r}, **{ALONE!r}, loaders={loaders})"
    code = f"import sys, time, nfold\nfor _ in {call}:\n    print(time.time() - float(sys.argv[1]))\n    break"
    command = [sys.executable, "-c", code, str(time.time())]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


WAYS = {
    "nfold, one thread": lambda steps, here: spread(0, steps, here),
    "nfold, two loaders": lambda steps, here: spread(2, steps, here),
    "plain, DataLoader(num_workers=0)": lambda steps, here: plain(0, steps, here),
    "plain, DataLoader(num_workers=2)": lambda steps, here: plain(2, steps, here),
}


def race(steps: int) -> dict[str, dict[str, Any]]:
    """Run each way once, one after another. Batches come in bursts, so a run counts by its mean step."""
    found = {}
    for name, way in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = way(steps, Path(folder))
        found[name]["step_s"] = statistics.fmean(found[name].pop("steps_s")[WARM_UP:])
    one, two = (found[name].pop("weights") for name in ("nfold, one thread", "nfold, two loaders"))
    assert one == two, "loaders changed what was learnt"
    return found


def starts() -> dict[str, float]:
    """Start nfold once without and once with loaders, one after the other."""
    found = {}
    for loaders in STARTS:
        with tempfile.TemporaryDirectory() as folder:
            found[f"--loaders {loaders}"] = start_s(loaders, Path(folder))
    return found


def summary(rounds: list[dict[str, dict[str, Any]]], begun: list[dict[str, float]]) -> dict[str, Any]:
    """Return medians over the rounds with their range, and ratios within rounds."""
    steps = {name: _spread([each[name]["step_s"] for each in rounds]) for name in WAYS}
    for name in steps:
        if "predicted_s" in rounds[0][name]:
            steps[name]["predicted_s"] = statistics.median(each[name]["predicted_s"] for each in rounds)
    ratios = {
        pair: _spread([each[one]["step_s"] / each[other]["step_s"] for each in rounds])
        for pair, (one, other) in PAIRS.items()
    }
    first = {name: _spread([each[name] for each in begun]) for name in begun[0]}
    return {"step_s": steps, "ratios": ratios, "first_step_s": first}


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=90)
    options.add_argument("--files", type=int, default=NUM_FILES)
    chosen = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), chosen.files)
        os.environ[FOLDER] = folder
        size = sum(file.stat().st_size for file in Path(folder).iterdir()) // chosen.files
        begun = [starts() for _ in range(chosen.rounds)]
        rounds = [race(chosen.steps) for _ in range(chosen.rounds)]
    found = summary(rounds, begun)
    for kind, rows in found.items():
        for name, row in rows.items():
            told = f", predicted {row['predicted_s']:.3f}" if "predicted_s" in row else ""
            print(f"{kind:12} {name:40} {row['median']:.3f} ({row['least']:.3f} to {row['most']:.3f}){told}")
    write(
        {**found, "files": chosen.files, "bytes_a_file": size, "steps": chosen.steps, "rounds": chosen.rounds}, __file__
    )


if __name__ == "__main__":
    main()
