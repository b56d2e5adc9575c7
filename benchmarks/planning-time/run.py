"""How long does planning take, without capture and profile, and how does it grow with nodes and operators?

The graphs are those that `traffic/` captured, their seconds in proportion to their operations.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from nfold.core import codec
from nfold.core.graph import ModelGraph
from nfold.planning.search import plan

sys.path.insert(0, str(Path(__file__).parent.parent))
from environment import write
from programs.counted import GRAPHS, question

NETS = ("alexnet", "vgg16", "resnet50")
NODES = (2, 4, 8, 16, 32, 64)
BATCH_PER_NODE = 16
ROUNDS = 3


def load(net: str) -> ModelGraph:
    """Read a captured graph."""
    return codec.load(ModelGraph, GRAPHS / f"{net}.json")


def timed(net: str, nodes: int) -> dict[str, Any]:
    """Plan some times with `auto`, and return the medians."""
    graph = load(net)
    asked = question(graph, BATCH_PER_NODE * nodes, nodes, None)
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
    }


def plot(rows: list[dict[str, Any]]) -> str:
    """Return a chart in Mermaid's language, to be put into a page: a line for each net."""
    nodes = sorted({row["nodes"] for row in rows})
    most = max(row["plan_s"] for row in rows)
    lines = [
        "xychart-beta",
        f'    x-axis "nodes" {nodes}',
        f'    y-axis "seconds" 0 --> {most:.1f}',
    ]
    for net in dict.fromkeys(row["net"] for row in rows):
        times = [row["plan_s"] for row in rows if row["net"] == net]
        lines.append(f'    line "{net}" {times}')
    return "\n".join(lines)


def main() -> None:
    """Plan every net on every number of nodes, and write result.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="*", default=NETS)
    parser.add_argument("--nodes", nargs="*", type=int, default=NODES)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for net in asked.nets:
        for nodes in asked.nodes:
            rows.append(timed(net, nodes))
            print(rows[-1], flush=True)
    print(plot(rows))
    write({"batch_per_node": BATCH_PER_NODE, "rounds": ROUNDS, "rows": rows}, __file__)


if __name__ == "__main__":
    main()
