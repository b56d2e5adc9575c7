"""Asks for advice on 1 to 6 emulated nodes, trains on each number of them, and compares. Needs root, `ip` and `tc`."""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nfold
from nfold.core.findings.node_advice import Advice, Forecast
from nfold.planning.choosing.node_counts import HELPS
from nfold.planning.choosing.strategies import SEARCHED
from nfold.verbs.try_plans import Trial, TriedPlan, try_plans

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this
from spells import Watch  # noqa: E402

PROGRAM = HERE.parent / "programs" / "resnet.py"
NODES = 6
CORES = 0.3
"""Of a node: all together have about what the machine has, and leave some to the kernel."""
STEPS = 30
NODE = (
    '[[node]]\nname = "{name}"\ncores = {cores}\nmemory = "2 GiB"\nuplink = "{up} Mbit/s"\ndownlink = "{down} Mbit/s"\n'
)
SLOW_NODE, SLOW_MBIT = 2, 10
SETTINGS = {
    "fast links": [(1000, 1000)] * NODES,
    "100 Mbit/s": [(100, 100)] * NODES,
    "one slow uplink": [(SLOW_MBIT if node == SLOW_NODE else 1000, 1000) for node in range(NODES)],
}
"""Mbit/s up and down of each node."""
NEAR = 0.15
"""By how much a predicted step may differ from the measured one."""


def cluster_text(links: list[tuple[int, int]]) -> str:
    """Return the cluster file of a setting."""
    return "".join(NODE.format(name=f"n{node}", cores=CORES, up=up, down=down) for node, (up, down) in enumerate(links))


def trial_of(nodes: int, forecast: Forecast) -> Trial:
    """Return some steps as they were advised: a strategy that places operators finds out itself who gets none."""
    strategy = forecast.architecture.split()[0]
    workers = nodes if strategy in SEARCHED else nodes - len(forecast.idle)
    return Trial(strategy=strategy, workers=workers, steps=STEPS)


def stop_at(steps_s: Mapping[int, float]) -> int:
    """Return where more nodes stop helping, by measured steps and the rule of the advice."""
    return next(
        nodes
        for nodes, step_s in sorted(steps_s.items())
        if all(other_s > (1 - HELPS) * step_s for larger, other_s in steps_s.items() if larger > nodes)
    )


def row(nodes: int, forecast: Forecast, tried: TriedPlan) -> dict[str, Any]:
    """Put what was foretold of a number of nodes beside what was measured."""
    found = {
        "nodes": nodes,
        "advised": forecast.architecture,
        "idle": list(forecast.idle),
        "predicted_step_s": forecast.step_s,
    }
    if tried.report is None:
        return {**found, "refused": tried.refused}
    measured_s = tried.report.step_s.p50
    return {
        **found,
        "measured_step_s": measured_s,
        "p95_step_s": tried.report.step_s.p95,
        "error": forecast.step_s / measured_s - 1,
        "bottleneck": forecast.bottleneck.kind,
        "verdict": tried.report.verdict.kind,
        "place": tried.report.verdict.place,
    }


def judged(advice: Advice, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Say how near the advice was."""
    steps_s = {each["nodes"]: each["measured_step_s"] for each in rows if "refused" not in each}
    best = stop_at(steps_s)
    assert advice.stop_at is not None, "every size of these can run"
    return {
        "advised_stop": advice.stop_at,
        "measured_stop": best,
        "is_stop_near": abs(advice.stop_at - best) <= 1,
        "advised_quickest": advice.quickest,
        "measured_quickest": min(steps_s, key=steps_s.__getitem__),
        "num_near": sum(abs(each["error"]) <= NEAR for each in rows if "refused" not in each),
        "num_sizes": len(rows),
    }


def measure(name: str) -> dict[str, Any]:
    """Advise once, then train on each number of nodes."""
    with tempfile.TemporaryDirectory() as folder, Watch() as watch:
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(cluster_text(SETTINGS[name]))
        begun_s = time.monotonic()
        advice = nfold.advise(PROGRAM, emulate=cluster, nodes=NODES)
        advised_s = time.monotonic()
        asked = [(size.nodes, size.forecast) for size in advice.sizes if size.forecast is not None]
        tried = try_plans(PROGRAM, [trial_of(*each) for each in asked], emulate=cluster)
        ended_s = time.monotonic()
        rows = [row(*each, found) for each, found in zip(asked, tried, strict=True)]
        return {
            **stamp(),
            **judged(advice, rows),
            "advice_s": advised_s - begun_s,
            "slow_shares": [watch.slow_share(begun_s, advised_s), watch.slow_share(advised_s, ended_s)],
            "stolen_shares": [watch.stolen_share(begun_s, advised_s), watch.stolen_share(advised_s, ended_s)],
            "rows": rows,
        }


def tell(name: str, found: dict[str, Any]) -> None:
    """Print a setting."""
    print(
        f"{name}: advised to stop at {found['advised_stop']}, by measured steps at {found['measured_stop']}; "
        f"{found['num_near']} of {found['num_sizes']} steps within {NEAR:.0%}; asked for {found['advice_s']:.0f} s"
    )
    for each in found["rows"]:
        said = each.get("refused") or (
            f"{each['measured_step_s'] * 1e3:7.0f} ms, predicted {each['predicted_step_s'] * 1e3:7.0f} "
            f"({each['error']:+.0%}), {each['verdict']} {each['place']}"
        )
        print(f"  {each['nodes']} {each['advised']:14} {said}", flush=True)


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--settings", default=",".join(SETTINGS))
    for name in options.parse_args().settings.split(","):
        found = measure(name)
        tell(name, found)
        write({**known(__file__), "settings": {**known(__file__).get("settings", {}), name: found}}, __file__)


if __name__ == "__main__":
    main()
