"""Injects one cause (or two) into emulated clusters and compares the verdict with what was injected.

Needs root, `ip` and `tc`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from nfold.core.report import Report

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
from cases import CASES, Case  # noqa: E402  a script's siblings are found only after this
from environment import known, stamp, write  # noqa: E402
from playing import play  # noqa: E402

WITHIN = 0.1
"""Of the link's true speed."""


def judge(case: Case, report: Report) -> dict[str, Any]:
    """Compare a verdict with the truth."""
    verdict = report.verdict
    right = verdict.kind in case.expected
    off = None
    if case.bytes_per_s is not None and verdict.unit == "bytes/s":
        off = verdict.value / case.bytes_per_s - 1
    return {
        "case": case.name,
        "expected": case.expected,
        "expected_places": case.places,
        "expected_sub_causes": case.sub_causes,
        "verdict": verdict.kind,
        "place": verdict.place,
        "sub_cause": verdict.sub_cause,
        "value": verdict.value,
        "unit": verdict.unit,
        "text": verdict.text,
        "right_class": right,
        "right_place": right and any(place in verdict.place for place in case.places),
        "right_sub_cause": right and verdict.sub_cause in case.sub_causes,
        "speed_off": off,
        "step_s": report.step_s.p50,
        "predicted_step_s": report.predicted.step_s,
        "gains": [{"change": gain.change, "speedup": gain.speedup} for gain in verdict.gains],
        **stamp(),
    }


def shares(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How often class, place and speed were right."""
    placed = [row for row in rows if row["expected_places"]]
    reasoned = [row for row in rows if row["expected_sub_causes"]]
    speeds = [abs(row["speed_off"]) for row in rows if row["speed_off"] is not None]
    return {
        "cases": len(rows),
        "right_class": sum(row["right_class"] for row in rows) / len(rows),
        "right_place": sum(row["right_place"] for row in placed) / max(1, len(placed)),
        "placed_cases": len(placed),
        "right_sub_cause": sum(row["right_sub_cause"] for row in reasoned) / max(1, len(reasoned)),
        "reasoned_cases": len(reasoned),
        "speeds": len(speeds),
        "speeds_within_10_percent": sum(off <= WITHIN for off in speeds) / max(1, len(speeds)),
    }


def main() -> None:
    """Run every case, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="cases whose name has this in it")
    options.add_argument("--every", type=int, default=1, help="each so many-th case only, for a sample of all kinds")
    options.add_argument("--keep", action="store_true", help="only the cases that result.json does not have yet")
    chosen = options.parse_args()
    rows: list[dict[str, Any]] = known(__file__).get("rows", []) if chosen.keep else []
    judged, is_sample = {row["case"] for row in rows}, bool(chosen.only) or chosen.every > 1
    for case in CASES[:: chosen.every]:
        if chosen.only in case.name and case.name not in judged:
            rows.append(judge(case, play(case)))
            print(_line(rows[-1]), flush=True)
            if chosen.keep or not is_sample:
                write({**shares(rows), "rows": rows}, __file__)
    print(shares(rows) if rows else "no case has that in its name")


def _line(row: dict[str, Any]) -> str:
    placed = row["right_place"] or not row["expected_places"]
    reasoned = row["right_sub_cause"] or not row["expected_sub_causes"]
    sign = "ok   " if row["right_class"] and placed and reasoned else "WRONG"
    off = f" {row['speed_off'] * 100:+.0f} %" if row["speed_off"] is not None else ""
    wanted = f"{'/'.join(row['expected'])} {' or '.join(row['expected_places'])}".strip()
    return f"{sign} {row['case']:50} wanted {wanted:22} got {row['verdict']} {row['place']}{off} {row['sub_cause']}"


if __name__ == "__main__":
    main()
