"""Makes changes real that a report says would win, and compares what they win with what was said.

Needs root, `ip` and `tc`.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "verdicts"), str(HERE)]
from cases import CASES, Case  # noqa: E402  a script's siblings are found only after this
from environment import known, write  # noqa: E402
from playing import play_in  # noqa: E402
from real import Played, is_possible, play  # noqa: E402

from nfold.analysis.measured.link_regime import since_change  # noqa: E402
from nfold.analysis.measured.measured_facts import gather  # noqa: E402
from nfold.analysis.reporting.gains_of_changes import TriedChange  # noqa: E402
from nfold.analysis.reporting.resimulation import simulate_changes  # noqa: E402
from nfold.analysis.reporting.run_report import WARM_UP_STEPS  # noqa: E402
from nfold.verbs.results.summary import question_of  # noqa: E402
from nfold.verbs.run_folder.folder import RunFolder  # noqa: E402

CHOSEN = (
    "uplink of n2 at 40 Mbit/s, ring x4",
    "downlink of n2 at 20 Mbit/s, ps x3",
    "all links at 50 Mbit/s, ring x4",
    "n1 with 0.1 cores, ring x2",
    "n0 with 0.1 cores, ring x3",
    "incast at one server, 4 workers at 100 Mbit/s",
    "latency 10 ms, ring x4",
    "slow n2 and links of 300 Mbit/s, ring x4",
    "plenty of network, ring x2",
    "too little processor for fast links, ring x4",
    "slow input, ring x2",
)
LEAST_GAIN = 1.15
"""Less would be within 15 % whatever was measured."""
STRATEGIES = 2
"""Other strategies made real for one case; of every other kind of change the one that wins most."""
WITHIN = 0.15
LEAST_S, MOST_STEPS = 10.0, 100
"""A step of a tenth of a second needs more of them than one of a second."""


def main() -> None:
    """Play cases, print every change, and write result.json after each case."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keep", action="store_true", help="only the cases that result.json does not have yet")
    options.add_argument("--case", default="", help="only cases with this in their name; the others keep their rows")
    given = options.parse_args()
    rows: list[dict[str, Any]] = known(__file__).get("rows", []) if given.keep or given.case else []
    done = {row["case"] for row in rows} if given.keep else set()
    for case in (each for each in CASES if each.name in CHOSEN and each.name not in done and given.case in each.name):
        rows = [row for row in rows if row["case"] != case.name]
        for row in honoured(case):
            rows.append(row)
            print(
                f"{row['case']:46} {row['change']:46} said {row['predicted_gain']:6.2f}x  "
                f"measured {row['measured_gain']:6.2f}x  {row['error']:+.0%}",
                flush=True,
            )
        write({**summary(rows), "rows": rows}, __file__)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many changes won what was said."""
    errors = [abs(row["error"]) for row in rows]
    return {
        "changes": len(rows),
        "honoured": sum(error <= WITHIN for error in errors),
        "median_error": median(errors) if errors else None,
    }


def honoured(case: Case) -> Iterator[dict[str, Any]]:
    """Play a case, then the best change of every kind that can be made."""
    with tempfile.TemporaryDirectory() as folder:
        report = play_in(case, Path(folder) / "before")
        played, offered = judge(case, RunFolder.open(Path(folder) / "before"))
        for index, tried in enumerate(chosen(played, offered)):
            steps = max(case.steps, min(MOST_STEPS, round(LEAST_S / tried.changed.step_s)))
            after_s = play(played, tried, Path(folder) / f"after{index}", steps).step_s.p50
            times = 2 if tried.kind == "batch" else 1
            measured = times * report.step_s.p50 / after_s
            yield {
                "case": case.name,
                "kind": tried.kind,
                "change": tried.gain.change,
                "before_s": report.step_s.p50,
                "after_s": after_s,
                "simulated_before_s": played.judged.step_s,
                "simulated_after_s": tried.changed.step_s,
                "predicted_gain": tried.gain.speedup,
                "measured_gain": measured,
                "error": tried.gain.speedup / measured - 1,
            }


def judge(case: Case, folder: RunFolder) -> tuple[Played, tuple[TriedChange, ...]]:
    """Return a run with the question that simulates like it, and all that would win something."""
    planned, trace = folder.known(), since_change(folder.trace())
    assert planned.plan is not None
    facts = gather(planned.plan, trace, planned.cluster, WARM_UP_STEPS)
    what_ifs = simulate_changes(facts, question_of(planned.plan, planned))
    assert what_ifs.case is not None
    assert what_ifs.possible_gains is not None
    return Played(case=case, folder=folder, judged=what_ifs.case), what_ifs.possible_gains.tried


def chosen(played: Played, offered: tuple[TriedChange, ...]) -> list[TriedChange]:
    """Return the changes to make real: of each kind the best that can be made, and no placement twice."""
    found: list[TriedChange] = []
    for tried in offered:
        most = STRATEGIES if tried.kind == "strategy" else 1
        same = [each for each in found if each.kind == tried.kind]
        if tried.gain.speedup < LEAST_GAIN or len(same) >= most or not is_possible(played, tried):
            continue
        if all(each.changed.plan.placement != tried.changed.plan.placement for each in same):
            found.append(tried)
    return found


if __name__ == "__main__":
    main()
