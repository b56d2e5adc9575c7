"""Plays random schedules of members that join, leave and are killed, with --exact, and compares bits with one device's.

Ranks are threads of this process: the harness is the one of the tests.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2] / "tests" / "runtime")]
from environment import stamp, write  # noqa: E402  a script's siblings are found only after this
from nets import NETS, program  # noqa: E402
from random_members import disturbed, undisturbed, unlike  # noqa: E402

STRATEGIES = ("ring", "ps", "weighted", "pipeline", "hybrid", "hypergraph")
WHOLE = ("ring", "ps", "weighted")
"""Those that never cut a model, which some nets do not bear."""


def played(number: int, folder: Path) -> dict[str, Any]:
    """Play one schedule and the same number of steps on one device."""
    net = list(NETS)[number % len(NETS)]
    choices = WHOLE if net == "tied" else STRATEGIES
    strategy = choices[number // len(NETS) % len(choices)]
    mine = program(net)
    found = disturbed(mine, folder / "run", strategy, number)
    differing = unlike(found.state, undisturbed(mine, folder / "alone", found.steps))
    return {"net": net, "strategy": strategy, "events": found.events, "steps": found.steps, "unlike": differing}


def main() -> None:
    """Play, print and write result.json; exit with 1 if a bit differs."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("schedules", type=int, nargs="?", default=300)
    options.add_argument("--first", type=int, default=0, help="number of the first schedule")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows = []
    for number in range(chosen.first, chosen.first + chosen.schedules):
        with tempfile.TemporaryDirectory() as folder:
            row = played(number, Path(folder))
        print(number, row["net"], row["strategy"], *row["events"], f"{row['steps']} steps:", row["unlike"] or "equal")
        rows.append(row)
    wrong = [row for row in rows if row["unlike"]]
    events = Counter(event for row in rows for event in row["events"])
    write({"schedules": len(rows), "unlike": wrong, "events": dict(events), **stamp()}, __file__)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
