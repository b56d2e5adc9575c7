"""Compares the peak memory of every rank with what the planner predicted: strategies, nets and batch sizes.

The peak is that of training: what a process held at most since it was built (`VmHWM`, begun anew there).
"""

import argparse
import os
import sys
from itertools import product
from pathlib import Path
from typing import Any

from nfold.verbs.try_plans import Trial, TriedPlan, try_plans

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this

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
STRATEGIES = tuple(dict.fromkeys(strategy for strategy, _ in LAYOUTS))
QUESTION = ("net", "batch_size", "strategy", "workers")
"""What makes a row another one."""
STEPS = 4
GOAL = 0.15


def row(net: str, batch_size: int, tried: TriedPlan) -> dict[str, Any]:
    """What one trial came to, rank by rank."""
    trial = tried.trial
    found = {"net": net, "batch_size": batch_size, "strategy": trial.strategy, "workers": trial.workers, **stamp()}
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


def same_question(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows are of the same net, batch size and layout."""
    return all(one[key] == other[key] for key in QUESTION)


def main() -> None:
    """Try every layout of every net, and write result.json after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="*", default=NETS)
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES, choices=STRATEGIES)
    asked = parser.parse_args()
    rows = known(__file__).get("rows", [])  # each stays until its own question is asked again, since all take long
    layouts = [each for each in LAYOUTS if each[0] in asked.strategies]
    for net, batch_size, (strategy, workers) in product(asked.nets, asked.batches, layouts):
        os.environ |= {"MEMORY_NET": net, "MEMORY_BATCH": str(batch_size)}
        trials = [Trial(strategy=strategy, workers=workers, steps=STEPS)]
        (tried,) = try_plans(f"{HERE / 'program.py'}:program", trials)
        found = row(net, batch_size, tried)
        rows = [each for each in rows if not same_question(each, found)] + [found]
        print(found, flush=True)
        write({"summary": summary(rows), "rows": rows}, __file__)


if __name__ == "__main__":
    main()
