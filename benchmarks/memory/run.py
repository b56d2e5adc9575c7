"""Compares the peak memory of every rank with what the planner predicted: strategies, nets and batch sizes.

The peak is that of training: what a process held at most since it was built (`VmHWM`, begun anew there).
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from nfold.verbs.trials import Trial, Tried, try_plans

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this

NETS = ("alexnet", "vgg", "resnet18", "vit")
BATCHES = (32, 128)
LAYOUTS = (
    ("single", 1),
    ("ring", 2),
    ("ring", 4),
    ("ps", 2),
    ("pipeline", 2),
    ("pipeline", 4),
    ("hybrid", 3),
    ("hypergraph", 4),
)
STEPS = 4
GOAL = 0.15


def row(net: str, batch_size: int, tried: Tried) -> dict[str, Any]:
    """What one trial came to, rank by rank."""
    found = {"net": net, "batch_size": batch_size, "strategy": tried.trial.strategy, "workers": tried.trial.workers}
    if tried.plan is None or tried.trace is None:
        return {**found, "refused": tried.refused}
    measured = {usage.rank: usage.peak_rss_bytes for usage in tried.trace.usage}
    predicted = tried.plan.predicted.peak_memory_bytes
    errors = [predicted[rank] / measured[rank] - 1 for rank in sorted(measured)]
    return {
        **found,
        "chunks": tried.plan.chunks,
        "predicted_mib": [round(size / 2**20, 1) for size in predicted],
        "measured_mib": [round(measured[rank] / 2**20, 1) for rank in sorted(measured)],
        "worst_error": round(max(errors, key=abs), 4),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many rows are within the goal, and the worst of them."""
    errors = [abs(each["worst_error"]) for each in rows if "worst_error" in each]
    within = sum(error <= GOAL for error in errors)
    return {"goal": GOAL, "within_goal": within, "of": len(errors), "worst": max(errors, default=0.0)}


def rows_of_others(nets: list[str], batches: list[int]) -> list[dict[str, Any]]:
    """What was measured before of other nets and batch sizes: all together take half an hour."""
    path = HERE / "result.json"
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    return [each for each in before if each["net"] not in nets or each["batch_size"] not in batches]


def main() -> None:
    """Try every layout of every net, and write result.json after each, since all take long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="*", default=NETS)
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    asked = parser.parse_args()
    rows = rows_of_others(asked.nets, asked.batches)
    for net in asked.nets:
        for batch_size in asked.batches:
            os.environ |= {"MEMORY_NET": net, "MEMORY_BATCH": str(batch_size)}
            for strategy, workers in LAYOUTS:
                trials = [Trial(strategy=strategy, workers=workers, steps=STEPS)]
                (tried,) = try_plans(f"{HERE / 'program.py'}:program", trials)
                rows.append(row(net, batch_size, tried))
                print(rows[-1], flush=True)
                write({"summary": summary(rows), "rows": rows}, __file__)


if __name__ == "__main__":
    main()
