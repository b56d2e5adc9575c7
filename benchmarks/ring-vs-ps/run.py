"""Runs ring all-reduce against parameter servers on emulated clusters, beside what the planner predicted.

Every node is a network namespace with a shaped link and a share of a core; the links change from 50 to 1000 Mbit/s
while the ranks stay. Needs root, `ip` and `tc`.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Any

from nfold.verbs.try_plans import Trial, TriedPlan, try_plans

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this
from spells import Watch  # noqa: E402

PROGRAMS = {name: HERE.parent / "programs" / f"{name}.py" for name in ("small", "resnet", "heavy")}
PARAMETER_BYTES = {"small": 95_784, "resnet": 1_087_976, "heavy": 4_745_896}
COMPUTE_S = {"small": 0.03, "resnet": 0.3, "heavy": 0.1}
"""Both to choose how many steps a trial can afford; everything else is measured."""
NODES = (2, 4, 6, 8)
LINKS_MBIT = (50, 200, 1000)
ALL_CORES = 1.92
"""Of a cluster together, about what the machine has: shared evenly by twice as many nodes as there are workers."""
TRIAL_S = 12.0
FEWEST_STEPS, MOST_STEPS = 10, 120
GROWN_PROGRAMS, GROWN_WORKERS, GROWN_LINK_MBIT = ("heavy", "resnet"), (1, 2, 4, 8), 200
GROWN_CORES, SAMPLES_OF_A_WORKER = 0.12, 24
"""`--grown`: each node, and each worker's part of the batch, stay as they are while nodes are added."""
ROUNDS = 3
"""Most times that a trial is played. It ends when the machine was as slow in its planning as in its steps, and kept."""
CHANGED = 0.2
"""By how much the shares of slow moments may differ between the two."""
STOLEN = 0.05
"""How much of the processors' time a hypervisor may have given to others in either."""
DIFFERENT = 1.1
"""Two architectures differ where one takes this much longer than the other."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a number of workers sums its gradients."""

    strategy: str
    workers: int
    servers: int

    @property
    def name(self) -> str:
        """`ring`, `ps`, `ps +2`."""
        return self.strategy + (f" +{self.servers}" if self.servers else "")


def layouts(nodes: int) -> Iterator[Layout]:
    """Ring; shards on the workers; 1, half as many, and as many servers as workers, on hosts of their own."""
    if nodes == 1:
        yield Layout("single", 1, 0)
        return
    yield Layout("ring", nodes, 0)
    for servers in sorted({0, 1, nodes // 2, nodes}):
        yield Layout("ps", nodes, servers)


def trials(program: str, workers: int, links: tuple[int, ...]) -> list[Trial]:
    """Return all trials of a program with so many workers, those with equal links beside each other."""
    return [
        Trial(
            strategy=layout.strategy,
            workers=layout.workers,
            servers=layout.servers,
            steps=_steps(program, layout, mbit),
            link_bytes_per_s=mbit * 1e6 / 8,
        )
        for mbit in links
        for layout in layouts(workers)
    ]


def _steps(program: str, layout: Layout, mbit: int) -> int:
    """As many steps as the time of a trial allows if nothing overlaps."""
    servers = layout.servers or layout.workers
    step_s = COMPUTE_S[program] + 2 * PARAMETER_BYTES[program] * max(1.0, layout.workers / servers) * 8 / (mbit * 1e6)
    return max(FEWEST_STEPS, min(MOST_STEPS, round(TRIAL_S / step_s)))


def row(program: str, tried: TriedPlan) -> dict[str, Any]:
    """What one trial came to."""
    trial, report = tried.trial, tried.report
    rate = trial.link_bytes_per_s or 0.0
    where = {
        "program": program,
        "strategy": trial.strategy,
        "workers": trial.workers,
        "servers": trial.servers,
        "link_mbit": round(rate * 8 / 1e6),
    }
    if report is None:
        return {**where, "refused": tried.refused}
    return {
        **where,
        "measured_step_s": report.step_s.p50,
        "p95_step_s": report.step_s.p95,
        "predicted_step_s": report.predicted.step_s,
        "prediction_error": report.predicted.step_s / report.step_s.p50 - 1,
        "compute_s": report.time.compute_s,
        "exposed_communication_s": report.time.exposed_communication_s,
        "peer_wait_s": report.time.peer_wait_s,
        "other_s": report.time.other_s + report.time.input_s + report.time.update_s,
        "sent_bytes_per_step": report.sent_bytes_per_step,
        "bytes_equal": report.sent_bytes_per_step == report.predicted.sent_bytes_per_step,
        "verdict": report.verdict.kind,
        "place": report.verdict.place,
        "value": report.verdict.value,
        "steps": report.num_steps,
        "samples_per_s": report.samples_per_s,
    }


def errors(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How far predictions were off, sign left out, and how often the ranking of two architectures was right."""
    done = [each for each in rows if "refused" not in each]
    off = sorted(abs(each["prediction_error"]) for each in done)
    right, differ = 0, 0
    for one, other in combinations(done, 2):
        same = all(one[key] == other[key] for key in ("program", "workers", "link_mbit"))
        measured = one["measured_step_s"] / other["measured_step_s"]
        if same and max(measured, 1 / measured) > DIFFERENT:
            differ += 1
            right += (measured > 1) == (one["predicted_step_s"] > other["predicted_step_s"])
    return {
        "runs": len(done),
        "median_error": median(off),
        "p95_error": off[min(len(off) - 1, round(0.95 * (len(off) - 1)))],
        "ranking_right": right / max(1, differ),
        "ranked_pairs": differ,
        "bytes_equal": all(each["bytes_equal"] for each in done),
        "machine_changed": sum(_disturbance(each) > 1 for each in done),
    }


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--programs", default=",".join(PROGRAMS))
    options.add_argument("--nodes", default=",".join(map(str, NODES)))
    options.add_argument("--links", default=",".join(map(str, LINKS_MBIT)), help="Mbit/s")
    options.add_argument("--keep", action="store_true", help="replace no other rows of result.json")
    options.add_argument("--grown", action="store_true", help="only how samples a second grow with the nodes")
    chosen = options.parse_args()
    if chosen.grown:
        grow()
        return
    nodes, links = (tuple(map(int, text.split(","))) for text in (chosen.nodes, chosen.links))
    programs = chosen.programs.split(",")
    old = known(__file__).get("rows", []) if chosen.keep else []
    rows: list[dict[str, Any]] = [
        each
        for each in old
        if each["program"] not in programs or each["workers"] not in nodes or each["link_mbit"] not in links
    ]
    for program, workers in product(programs, nodes):
        measure(program, workers, links, round(ALL_CORES / (2 * workers), 2), rows)
        write({**known(__file__), "rows": rows, **errors(rows)}, __file__)
    print(errors(rows))


def grow() -> None:
    """Add nodes, each with its own samples: what every layout comes to beside one node alone."""
    rows: list[dict[str, Any]] = []
    for program, workers in product(GROWN_PROGRAMS, GROWN_WORKERS):
        os.environ["BATCH_SIZE"] = str(SAMPLES_OF_A_WORKER * workers)  # the program's: see digits32.py
        measure(program, workers, (GROWN_LINK_MBIT,), GROWN_CORES, rows)
        write({**known(__file__), "grown": {**stamp(), "rows": rows}}, __file__)


def measure(program: str, workers: int, links: tuple[int, ...], cores: float, rows: list[dict[str, Any]]) -> None:
    """Try all layouts of a program and print each as soon as it is known; again where the machine changed meanwhile."""
    left, best = trials(program, workers, links), dict[Trial, dict[str, Any]]()
    for _ in range(ROUNDS):
        for trial, found in _measured(program, workers, links, cores, left):
            if trial not in best or _disturbance(found) < _disturbance(best[trial]):
                best[trial] = found
        left = [trial for trial in left if 1 < _disturbance(best[trial]) < inf]
        if not left:
            break
    rows.extend(best.values())


def _disturbance(found: dict[str, Any]) -> float:
    """How much the machine changed or was taken away, 1 being what is allowed; infinite where nothing is known.

    Of rows that are older than the look at what was taken away, that is not known and left out.
    """
    if "changed" not in found:
        return inf
    return max(found["changed"] / CHANGED, max(found.get("stolen_shares", (0.0,))) / STOLEN)


def _measured(
    program: str, workers: int, links: tuple[int, ...], cores: float, asked: list[Trial]
) -> list[tuple[Trial, dict[str, Any]]]:
    rows: list[tuple[Trial, dict[str, Any]]] = []
    commit, begun_s = stamp()["commit"], time.monotonic()

    def tell(tried: TriedPlan) -> None:
        nonlocal begun_s
        found, now_s = {**row(program, tried), "cores": cores, "commit": commit}, time.monotonic()
        if tried.trace:
            step_s = fmean(max(step.step_s) for step in tried.trace.steps)  # of those that were kept
            planned_s = now_s - step_s * tried.trace.num_steps
            times = (begun_s, planned_s), (planned_s, now_s)
            shares = [watch.slow_share(*each) for each in times]
            found |= {
                "slow_shares": [round(each, 3) for each in shares],
                "changed": round(abs(shares[0] - shares[1]), 3),
                "stolen_shares": [round(watch.stolen_share(*each), 3) for each in times],
            }
        begun_s = now_s
        rows.append((tried.trial, found))
        print(_line(found), flush=True)

    with tempfile.TemporaryDirectory() as folder, Watch() as watch:
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(
            f'[[node]]\nname = "n0"\ncores = {cores}\nmemory = "2 GiB"\nuplink = "{links[0]} Mbit/s"\n'
            f"count = {2 * workers}\n"
        )
        try_plans(PROGRAMS[program], asked, on_tried=tell, emulate=cluster)
    return rows


def _line(found: dict[str, Any]) -> str:
    name = f"{found['program']:7}{found['link_mbit']:5} Mbit/s  {found['strategy']:4} x{found['workers']}"
    name += f" +{found['servers']}" if found["servers"] else "   "
    if "refused" in found:
        return f"{name}  {found['refused']}"
    return (
        f"{name}  {found['measured_step_s'] * 1e3:8.1f} ms  predicted {found['predicted_step_s'] * 1e3:8.1f} "
        f"({found['prediction_error'] * 100:+4.0f} %)  compute {found['compute_s'] * 1e3:6.1f}  "
        f"exposed {found['exposed_communication_s'] * 1e3:7.1f}  wait {found['peer_wait_s'] * 1e3:6.1f}  "
        f"other {found['other_s'] * 1e3:5.1f}  slow {found['slow_shares']} stolen {found['stolen_shares']}  "
        f"{found['verdict']} {found['place']}"
    )


if __name__ == "__main__":
    main()
