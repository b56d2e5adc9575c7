"""Makes changes real that a report says would win, and compares what they win with what was said.

Needs root, `ip` and `tc`.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "verdicts")]
from cases import CASES, Case, Machine  # noqa: E402  a script's siblings are found only after this
from environment import write  # noqa: E402
from playing import play  # noqa: E402

CHOSEN = (
    "uplink of n2 at 40 Mbit/s, ring x4",
    "downlink of n2 at 20 Mbit/s, ps x3",
    "all links at 50 Mbit/s, ring x4",
    "n1 with 0.1 cores, ring x2",
    "n0 with 0.1 cores, ring x3",
    "incast at one server, 4 workers at 100 Mbit/s",
    "latency 10 ms, ring x4",
    "slow n2 and links of 300 Mbit/s, ring x4",
)
MOST = 3
"""Changes made real for one case."""
WITHIN = 0.15


def changed(case: Case, change: str) -> Case | None:
    """Return a case with a change made; None for one that cannot be made here, as another batch size."""
    machines = case.machines
    if found := re.fullmatch(r"leaving n(\d+) out", change):
        index = int(found[1])
        left = (*machines[:index], *machines[index + 1 :])
        return replace(case, machines=left, strategy=case.strategy if len(left) > 1 else "single")
    if found := re.fullmatch(r"making n(\d+) as fast as the others", change):
        index = int(found[1])
        return replace(case, machines=_but(machines, index, cores=machines[index - 1].cores))
    if found := re.fullmatch(r"`--strategy (\S+)`", change):
        workers = machines[: len(machines) - case.servers]
        return replace(case, strategy=found[1], servers=0, machines=workers)
    if found := re.fullmatch(r"`--servers (\d+)`(?: \((\d+) hosts? more\))?", change):
        count = int(found[1])
        workers = machines[: len(machines) - case.servers]
        return replace(case, servers=count, machines=(*workers, *(machines[-1],) * count))
    if found := re.fullmatch(r"a (\S+ \S+) link for n(\d+)", change):
        return replace(case, machines=_but(machines, int(found[2]), uplink=found[1], downlink=found[1]))
    if change == "one more node like these":
        return replace(case, machines=(*machines, machines[-1]))
    if change == "no latency":
        return replace(case, machines=tuple(replace(each, latency="0 ms") for each in machines))
    return None


def _but(machines: tuple[Machine, ...], index: int, **given: Any) -> tuple[Machine, ...]:
    return (*machines[:index], replace(machines[index], **given), *machines[index + 1 :])


def honoured(case: Case) -> Iterator[dict[str, Any]]:
    """Play a case, then each of the best changes that can be made."""
    before = play(case)
    gains = [(gain, other) for gain in before.verdict.gains if (other := changed(case, gain.change))]
    for gain, other in gains[:MOST]:
        chunks = re.search(r"--chunks (\d+)", gain.command)
        after = play(replace(other, chunks=int(chunks[1])) if chunks else other)
        measured = before.step_s.p50 / after.step_s.p50
        yield {
            "case": case.name,
            "change": gain.change,
            "before_s": before.step_s.p50,
            "after_s": after.step_s.p50,
            "predicted_gain": gain.speedup,
            "measured_gain": measured,
            "error": gain.speedup / measured - 1,
            "step_error": after.predicted.step_s / after.step_s.p50 - 1,
        }


def main() -> None:
    """Play every case, print and write result.json after each."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keep", action="store_true", help="only the cases that result.json does not have yet")
    keep = options.parse_args().keep
    rows: list[dict[str, Any]] = json.loads((HERE / "result.json").read_text())["rows"] if keep else []
    known = {row["case"] for row in rows}
    for case in (each for each in CASES if each.name in CHOSEN and each.name not in known):
        for row in honoured(case):
            rows.append(row)
            print(
                f"{row['case']:46} {row['change']:36} predicted {row['predicted_gain']:6.2f}x  "
                f"measured {row['measured_gain']:6.2f}x  {row['error']:+.0%}",
                flush=True,
            )
        errors = [abs(row["error"]) for row in rows]
        figures = {
            "changes": len(rows),
            "within_15_percent": sum(error <= WITHIN for error in errors) / max(1, len(rows)),
            "median_error": median(errors) if errors else None,
        }
        write({**figures, "rows": rows}, __file__)


if __name__ == "__main__":
    main()
