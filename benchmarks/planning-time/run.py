"""How long does planning take, without capture and profile, and how does it grow with nodes and operators?

The graphs are those that `traffic/` captured, their seconds in proportion to their operations. They grow by nodes,
equal ones and such of unlike speed, and ResNet-50 on 8 nodes by blocks in its third stage.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepening import deepened

from nfold.core import codec
from nfold.core.graph import ModelGraph
from nfold.planning.choosing.search import plan

sys.path.insert(0, str(Path(__file__).parent.parent))
from environment import known, stamp, write
from plots import chart
from programs.counted import GRAPHS, question

NETS = ("alexnet", "vgg16", "resnet50")
NODES = (2, 4, 8, 16, 32, 64)
BLOCK = "12"
"""Of ResNet-50: one of the third stage that does not change the shape."""
COPIES = (0, 6, 17, 34, 51, 68)
"""17: ResNet-101; 34: as many operators as ResNet-152."""
NODES_OF_COPIES = 8
BATCH_PER_NODE = 16
EVEN, UNEVEN = (1.0,), (2.0, 1.0, 0.5, 0.5)
"""Speeds of nodes, again and again."""
ROUNDS = 3
AXES = {"nodes": "rows", "uneven nodes": "uneven_rows", "operators": "by_operators"}
"""How each is called in result.json."""


def load(net: str) -> ModelGraph:
    """Read a captured graph."""
    return codec.load(ModelGraph, GRAPHS / f"{net}.json")


def timed(net: str, graph: ModelGraph, nodes: int, speeds: tuple[float, ...] = EVEN) -> dict[str, Any]:
    """Plan some times with `auto`, and return the medians."""
    asked = question(graph, BATCH_PER_NODE * nodes, nodes, None, speeds)
    seconds, processor_s = [], []
    for _ in range(ROUNDS):
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        chosen = plan(asked)
        seconds.append(time.perf_counter() - begin_s)
        processor_s.append(time.process_time() - begin_cpu_s)
    return {
        "net": net,
        "nodes": nodes,
        "operators": len(graph.operators),
        "plan_s": round(statistics.median(seconds), 3),
        "processor_s": round(statistics.median(processor_s), 3),
        "strategy": chosen.strategy,
        **stamp(),
    }


def by_nodes(nets: list[str], nodes: list[int], speeds: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    """Yield every net on every number of nodes; on fewer than there are speeds they would be other clusters."""
    for net in nets:
        graph = load(net)
        yield from (timed(net, graph, count, speeds) for count in nodes if count >= len(speeds))


def by_operators(copies: list[int]) -> Iterator[dict[str, Any]]:
    """Yield ever deeper ResNets on as many nodes."""
    graph = load("resnet50")
    for count in copies:
        found = timed("resnet50", deepened(graph, BLOCK, count), NODES_OF_COPIES)
        yield {**found, "net": f"resnet50 + {count} blocks"}


def charts(result: dict[str, Any]) -> str:
    """Return the ways in which the time grows, for README.md."""
    deeper, told = result.get("by_operators", []), []
    for rows in filter(None, (result.get("rows"), result.get("uneven_rows"))):
        nodes = sorted({row["nodes"] for row in rows})
        nets = dict.fromkeys(row["net"] for row in rows)
        lines = {net: [row["plan_s"] for row in rows if row["net"] == net] for net in nets}
        told.append(chart("nodes", nodes, "seconds", lines))
    if deeper:
        lines = {f"ResNet on {NODES_OF_COPIES} nodes": [row["plan_s"] for row in deeper]}
        told.append(chart("operators", [row["operators"] for row in deeper], "seconds", lines))
    return "\n\n".join(told)


def main() -> None:
    """Plan along both axes, write result.json after each plan, and print the charts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axes", nargs="*", default=AXES, choices=AXES, help="the others stay as they were")
    parser.add_argument("--nets", nargs="*", default=NETS)
    parser.add_argument("--nodes", nargs="*", type=int, default=NODES)
    parser.add_argument("--copies", nargs="*", type=int, default=COPIES, help="blocks more than ResNet-50 has")
    parser.add_argument("--plots", action="store_true", help="print the charts of result.json and measure nothing")
    asked = parser.parse_args()
    result = known(__file__)
    plans = {
        "nodes": by_nodes(asked.nets, asked.nodes, EVEN),
        "uneven nodes": by_nodes(asked.nets, asked.nodes, UNEVEN),
        "operators": by_operators(asked.copies),
    }
    for axis in () if asked.plots else asked.axes:
        rows = result[AXES[axis]] = []
        for row in plans[axis]:
            rows.append(row)
            print(row, flush=True)
            keep(result)
    print(charts(result))


def keep(result: dict[str, Any]) -> None:
    """Write result.json."""
    axes = {name: result[name] for name in AXES.values() if name in result}
    write({"batch_per_node": BATCH_PER_NODE, "rounds": ROUNDS, **axes}, __file__)


if __name__ == "__main__":
    main()
