"""Measures ring and parameter server at 1, 2 and 4 workers beside what the planner predicted: seconds and bytes."""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import nfold
from nfold.core.report import Report

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this

PROGRAMS = {
    "digits": (HERE.parents[1] / "examples" / "digits.py", 100),
    "bigger CNN": (HERE.parent / "overhead" / "bigger.py", 12),
}
"""Script and steps of a run."""
LAYOUTS = (
    ("single", 1, 0),
    ("ring", 2, 0),
    ("ring", 3, 0),
    ("ring", 4, 0),
    ("ps", 2, 0),
    ("ps", 3, 0),
    ("ps", 4, 0),
    ("ps", 1, 1),
    ("ps", 2, 1),
    ("ps", 2, 2),
    ("ps", 4, 1),
)
"""Strategy, workers, dedicated servers."""


def run_once(script: Path, strategy: str, workers: int, servers: int, steps: int) -> Report:
    """Train for some steps and return the report."""
    with tempfile.TemporaryDirectory() as folder:
        return nfold.train(
            script,
            strategy=strategy,
            workers=workers,
            servers=servers,
            steps=steps,
            out=Path(folder) / "run",
            evaluate=False,
            checkpoint_every=0,
        ).report


def summarise(reports: list[Report]) -> dict[str, Any]:
    """Take the medians of repeated runs of one layout."""
    measured = statistics.median(report.step_s.p50 for report in reports)
    predicted = statistics.median(report.predicted.step_s for report in reports)
    one = reports[0]
    return {
        "strategy": one.strategy,
        "workers": one.workers,
        "servers": one.servers,
        "measured_step_s": measured,
        "measured_each_s": [report.step_s.p50 for report in reports],
        "predicted_step_s": predicted,
        "prediction_error": predicted / measured - 1,
        "compute_s": statistics.median(report.time.compute_s for report in reports),
        "exposed_communication_s": statistics.median(report.time.exposed_communication_s for report in reports),
        "peer_wait_s": statistics.median(report.time.peer_wait_s for report in reports),
        "sent_bytes_per_step": one.sent_bytes_per_step,
        "predicted_bytes_per_step": one.predicted.sent_bytes_per_step,
        "bytes_equal": all(report.sent_bytes_per_step == report.predicted.sent_bytes_per_step for report in reports),
        "verdict": one.verdict.kind,
    }


def main() -> None:
    """Measure every layout in turn, round after round, and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", choices=tuple(PROGRAMS), help="one program instead of all")
    chosen = options.parse_args()
    rounds = chosen.rounds
    result: dict[str, Any] = {}
    for name in (chosen.only,) if chosen.only else tuple(PROGRAMS):
        script, steps = PROGRAMS[name]
        reports: dict[Any, list[Report]] = {layout: [] for layout in LAYOUTS}
        for _ in range(rounds):
            for layout in LAYOUTS:
                reports[layout].append(run_once(script, *layout, steps))
        result[name] = [summarise(each) for each in reports.values()]
        for row in result[name]:
            print(
                f"{name:10} {row['strategy']:6} {row['workers']} workers {row['servers']} servers  "
                f"measured {row['measured_step_s'] * 1e3:7.1f} ms  predicted {row['predicted_step_s'] * 1e3:7.1f} ms  "
                f"error {row['prediction_error'] * 100:+4.0f} %  bytes {row['sent_bytes_per_step']:>9} "
                f"{'=' if row['bytes_equal'] else '!='} {row['predicted_bytes_per_step']}",
                flush=True,
            )
    write(result, __file__)
    if not all(row["bytes_equal"] for rows in result.values() for row in rows):
        sys.exit("a run sent other bytes than predicted")


if __name__ == "__main__":
    main()
