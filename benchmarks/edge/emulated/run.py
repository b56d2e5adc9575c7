"""How long training takes where data, speed and links are uneven, by each way to place data: moving is counted.

Nodes are emulated on this machine: control groups that limit cores in periods of 5 ms, network namespaces whose cards
carry little. Needs root. Each row is written when it is there.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this

from nfold.verbs.run_folder.folder import RunFolder  # noqa: E402

METHODS = ("nothing", "equal", "greedy", "ilp", "waterfill", "overlap", "joint")
LEARNT = 0.5
"""Mean loss of an epoch; from then on a model counts as trained."""
TIMEOUT_S = 580.0


@dataclass(frozen=True)
class Setting:
    """Nodes and a program."""

    cores: tuple[float, ...]
    mbit: tuple[float, ...]
    samples: tuple[int, ...]
    batch: int = 256
    width: int = 64

    def cluster(self) -> str:
        """Return the cluster file."""
        nodes = zip(self.cores, self.mbit, self.samples, strict=True)
        return "\n".join(
            f'[[node]]\nname = "node-{number}"\ncores = {cores}\nsamples = {samples}\nsample_bytes = 3136\n'
            f'uplink = "{mbit:g} Mbit/s"\n'
            for number, (cores, mbit, samples) in enumerate(nodes)
        )


THESIS = (0.1, 0.2, 0.4, 0.8)
SIX = (0.1, 0.1, 0.2, 0.2, 0.4, 0.8)
MOST_ON_SLOWEST = (1500, 750, 375, 375)
SIX_DOWN = (1200, 600, 450, 300, 225, 225)
SETTINGS = {
    "four boards, most data on the slowest": Setting(THESIS, (10, 50, 50, 50), MOST_ON_SLOWEST),
    "the same, large batches": Setting(THESIS, (10, 50, 50, 50), MOST_ON_SLOWEST, batch=750),
    "the same, quick links": Setting(THESIS, (100, 100, 100, 100), MOST_ON_SLOWEST),
    "the same, slow links": Setting(THESIS, (5, 10, 10, 10), MOST_ON_SLOWEST),
    "the same, a larger model": Setting(THESIS, (10, 50, 50, 50), MOST_ON_SLOWEST, width=256),
    "equal data": Setting(THESIS, (10, 50, 50, 50), (750, 750, 750, 750)),
    "equal speed": Setting((0.3, 0.3, 0.3, 0.3), (10, 50, 50, 50), MOST_ON_SLOWEST),
    "all data on the slowest": Setting(THESIS, (50, 50, 50, 50), (2970, 10, 10, 10)),
    "data where speed is": Setting(THESIS, (50, 50, 50, 50), (200, 400, 800, 1600)),
    "six boards, most data on the slowest": Setting(SIX, (5, 10, 20, 50, 50, 100), SIX_DOWN),
    "the same six, quick links": Setting(SIX, (100,) * 6, SIX_DOWN),
    "six, equal data": Setting(SIX, (5, 10, 20, 50, 50, 100), (500,) * 6),
}


def main() -> None:
    """Train by each method in each setting, and write result.json after each run."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--settings", nargs="*", type=int, default=list(range(len(SETTINGS))), help="by number, from 0"
    )
    options.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    options.add_argument("--epochs", type=int, default=10)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for number in chosen.settings:
            name, setting = list(SETTINGS.items())[number]
            for method in chosen.methods:
                row = {"setting": name, "method": method, "epochs": chosen.epochs}
                found = {**row, **stamp(), **train(setting, method, chosen.epochs, Path(folder))}
                print(found, flush=True)
                kept = [each for each in known(__file__).get("rows", []) if not row.items() <= each.items()]
                write({"rows": [*kept, found]}, __file__)


def train(setting: Setting, method: str, epochs: int, folder: Path) -> dict[str, Any]:
    """Train once; return seconds from the first sample that moves, as measured and as predicted."""
    file, out = folder / "cluster.toml", folder / f"run-{len(list(folder.iterdir()))}"
    file.write_text(setting.cluster())
    environment = {
        "SAMPLES": str(sum(setting.samples)),
        "BATCH": str(setting.batch),
        "WIDTH": str(setting.width),
        "EPOCHS": str(epochs),
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    asked = ["--emulate", str(file), "--place", method, "--strategy", "ring", "--checkpoint-every", "0"]
    command = [sys.executable, "-m", "nfold", "train", str(HERE / "program.py"), *asked, "--out", str(out)]
    try:
        ran = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {TIMEOUT_S:.0f} s"}
    if ran.returncode:
        return {"failed": re.sub(r"\s+", " ", ran.stderr)[-300:]}
    return measured(RunFolder.open(out), epochs)


def measured(folder: RunFolder, epochs: int) -> dict[str, Any]:
    """Return what a run came to."""
    steps = [line for line in folder.history() if not line["metrics"]]
    ends = {line["epoch"]: line["at_s"] for line in steps}
    losses = {epoch: [line["loss"] for line in steps if line["epoch"] == epoch] for epoch in ends}
    plan, ledger = folder.placed().plan, folder.trace().ledger
    moving_s = ledger.get("moving data", 0.0)
    learnt = next((epoch for epoch, values in losses.items() if sum(values) / len(values) <= LEARNT), None)
    return {
        "moving": plan.moving,
        "members": len(plan.members),
        "moved_bytes": plan.moved_bytes,
        "moving_s": moving_s,
        "epoch_ends_s": [moving_s + ends[epoch] for epoch in sorted(ends)],
        "predicted_s": plan.cost.run_s,
        "predicted_moving_s": plan.cost.move_s,
        "unmoved_predicted_s": None if plan.unmoved is None else plan.unmoved.run_s,
        "learnt_s": None if learnt is None else moving_s + ends[learnt],
        "error": plan.cost.run_s / (moving_s + ends[epochs]) - 1,
    }


if __name__ == "__main__":
    main()
