"""Runs a ring against shards by measured bandwidth, on links of which one is slow, and on even ones.

Every node is a network namespace with a shaped link; the ranks start once for each cluster and play both strategies in
turns. Needs root, `ip` and `tc`.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from nfold.verbs.try_plans import Trial, TriedPlan, try_plans

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this

PROGRAM = f"{HERE.parent / 'programs' / 'heavy.py'}:wide"
NODES = (4, 6)
FAST_MBIT, SLOW_MBIT = 200, 50
CORES = 1.8
"""Of all nodes together: about two, with something left for the network itself."""
STRATEGIES = ("ring", "weighted")


def cluster_text(nodes: int, *, uneven: bool) -> str:
    """Return a cluster whose first node's link is slow, or none."""
    cores = CORES / nodes
    first = SLOW_MBIT if uneven else FAST_MBIT
    return (
        f'[[node]]\nname = "first"\ncores = {cores}\nmemory = "2 GiB"\nuplink = "{first} Mbit/s"\n'
        f'[[node]]\nname = "other"\ncores = {cores}\nmemory = "2 GiB"\nuplink = "{FAST_MBIT} Mbit/s"\n'
        f"count = {nodes - 1}\n"
    )


def compare(nodes: int, *, uneven: bool, rounds: int, steps: int) -> dict[str, Any]:
    """Play both strategies in turns on one cluster."""
    measured: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    predicted: dict[str, float] = {}

    def tell(tried: TriedPlan) -> None:
        assert tried.report is not None, tried.refused
        measured[tried.trial.strategy].append(tried.report.step_s.p50)
        predicted[tried.trial.strategy] = tried.report.predicted.step_s

    trials = [Trial(strategy=name, workers=nodes, steps=steps) for _ in range(rounds) for name in STRATEGIES]
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(cluster_text(nodes, uneven=uneven))
        try_plans(PROGRAM, trials, on_tried=tell, emulate=cluster)
    pairs = zip(measured["ring"], measured["weighted"], strict=True)
    return {
        "nodes": nodes,
        "links": "one slow" if uneven else "even",
        "measured_step_s": measured,
        "predicted_step_s": predicted,
        "gain": median(ring / weighted for ring, weighted in pairs),
        "predicted_gain": predicted["ring"] / predicted["weighted"],
    }


def main() -> None:
    """Measure, print and write result.json after each cluster."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=8)
    chosen = options.parse_args()
    rows = []
    for nodes in NODES:
        for uneven in (True, False):
            row = compare(nodes, uneven=uneven, rounds=chosen.rounds, steps=chosen.steps)
            rows.append(row)
            print(
                f"{nodes} nodes, links {row['links']:8}  weighted is {row['gain']:.2f}x as fast as ring "
                f"(predicted {row['predicted_gain']:.2f}x)",
                flush=True,
            )
            write({"rows": rows}, __file__)


if __name__ == "__main__":
    main()
