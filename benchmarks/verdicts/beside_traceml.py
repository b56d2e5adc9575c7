"""Runs the ring cases under DistributedDataParallel with TraceML watching, and keeps what TraceML says of them.

Needs root, `ip`, `tc`, and a Python that has both nfold and TraceML (`pip install traceml-ai==0.5.0`). Cases of a
parameter server have no counterpart there, and are left out.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
from cases import CASES, SLOW_STEPS, Case  # noqa: E402  a script's siblings are found only after this
from environment import stamp  # noqa: E402
from playing import PROGRAMS, cluster_toml  # noqa: E402

RIGHT = {
    "link": ("NETWORK", "COMMUNICATION", "BANDWIDTH", "LINK"),
    "latency": ("NETWORK", "COMMUNICATION", "LATENCY"),
    "transport": ("NETWORK", "COMMUNICATION"),
    "peer wait": ("STRAGGLER",),
    "compute": ("COMPUTE-BOUND", "COMPUTE BOUND"),
    "input": ("INPUT",),
    "memory": ("MEMORY",),
    "small batch": ("BATCH", "OVERHEAD", "RESIDUAL"),
}
"""Words of a verdict that count as right for a class of ours, generously."""
STEPS, FEWER_STEPS = 60, 30
"""TraceML judges windows of steps and says little of a few; fewer where a step takes seconds."""
MOST_S = 300


def watched(case: Case) -> dict[str, Any]:
    """Run one case and return what TraceML says of it."""
    with tempfile.TemporaryDirectory() as folder:
        cluster, logs = Path(folder) / "cluster.toml", Path(folder) / "logs"
        cluster.write_text(cluster_toml(case.machines))
        faults = [word for fault in case.faults for word in ("--fault", fault)]
        program = str(PROGRAMS / case.program)
        steps = FEWER_STEPS if case.steps == SLOW_STEPS else STEPS
        node = (str(HERE / "traced.py"), program, "--steps", str(steps), "--node", str(logs))
        emulate = (sys.executable, "-m", "nfold.cli.main", "emulate")
        limit = ("timeout", "--kill-after", "20", str(MOST_S))
        done = subprocess.run(
            [*limit, *emulate, str(cluster), *faults, "--", sys.executable, *node],
            capture_output=True,
            text=True,
            check=False,
        )
        found = sorted(logs.rglob("final_summary.json"))
        summary = json.loads(found[0].read_text()) if found else {}
    said = spoken(summary)
    if not said:
        return {"case": case.name, "expected": case.expected, "failed": (done.stdout + done.stderr)[-600:]}
    return {"case": case.name, "expected": case.expected, "expected_places": case.places, **said, **judged(case, said)}


def judged(case: Case, said: dict[str, str]) -> dict[str, bool]:
    """Return whether TraceML named the class, and with it the place where one is to be named: it names ranks."""
    words = said["status"].upper()
    right = any(word in words for kind in case.expected for word in RIGHT.get(kind, ()))
    ranks = [found[1] for place in case.places if (found := re.search(r"\bn(\d+)", place))]
    named = not ranks or any(re.search(rf"\br{rank}\b", said["summary"], re.IGNORECASE) for rank in ranks)
    return {"right_class": right, "right_place": right and named}


def spoken(summary: dict[str, Any]) -> dict[str, str]:
    """Return TraceML's primary diagnosis."""
    primary = summary.get("primary_diagnosis") or {}
    return {key: str(primary.get(key, "")) for key in ("status", "summary", "action")} if primary else {}


def main() -> None:
    """Run the ring cases, print a line for each, and write traceml.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="cases whose name has this in it")
    given = options.parse_args()
    rows = []
    for case in CASES:
        if case.strategy == "ring" and given.only in case.name:
            rows.append(watched(case))
            row = rows[-1]
            sign = "none " if "failed" in row else "ok   " if row["right_place"] else "WRONG"
            heard = f"{row['status']}: {row['summary']}" if "status" in row else row["failed"]
            print(f"{sign} {case.name:50} wanted {'/'.join(case.expected):10} got {heard}", flush=True)
            if not given.only:
                text = json.dumps({**stamp(), "version": "0.5.0", "rows": rows}, indent=1)
                (HERE / "traceml.json").write_text(text + "\n")
    judged = [row for row in rows if "status" in row]
    print(
        f"{sum(row['right_class'] for row in judged)} classes right of {len(judged)}, {len(rows) - len(judged)} failed"
    )


if __name__ == "__main__":
    main()
