"""Times the prediction of one step on up to 1,000 nodes, and checks it against the message-level simulator on few."""

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.graph import ModelGraph
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.scaling import ScalingPoint, coarse_proposal_s, predict_scaling
from nfold.planning.choosing.strategies import named
from nfold.planning.inputs.facts import Facts

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import write
from resnet import profile, resnet50

BATCH_PER_WORKER = 32
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
LAYOUTS = (("ring", 0, None), ("ps", 0, None), ("ps", 1, None), ("ps", 1, 1))
"""Strategy, dedicated servers for each worker, and how many servers there are if that is one number for all."""
REPEATS = 5
NODES = {"processor at 100 GFLOP/s": 100e9, "accelerator at 10 TFLOP/s": 10e12}
MEGABITS = (100, 1000, 10_000)
CHECKED = tuple((workers, servers) for workers in (2, 4, 8) for servers in (0, 1, workers))


def question(graph: ModelGraph, node: str, workers: int, servers: int, megabits: float) -> Facts:
    """One rank on each of some equal nodes."""
    link = Channel(latency_s=5e-5, bandwidth_bytes_per_s=megabits * 1e6 / 8, origin="declared")
    nodes = tuple(
        Node(name=f"n{index}", cores=2.0, memory_bytes=1 << 40, local=link, uplink=link, downlink=link)
        for index in range(workers + servers)
    )
    return Facts(
        graph=graph,
        profiles={1: profile(graph, NODES[node])},
        cluster=Cluster(nodes=nodes),
        nodes=tuple(node.name for node in nodes),
        workers=workers,
        servers=servers,
        batch_size=BATCH_PER_WORKER * workers,
    )


def timed(predict: Callable[[], Any]) -> tuple[float, float]:
    """Return the median seconds of several calls, by the clock and of the processor."""
    wall, processor = [], []
    for _ in range(REPEATS):
        begin_s, worked_s = time.perf_counter(), time.process_time()
        predict()
        wall.append(time.perf_counter() - begin_s)
        processor.append(time.process_time() - worked_s)
    return statistics.median(wall), statistics.median(processor)


def scale(graph: ModelGraph) -> Iterator[dict[str, Any]]:
    """Predict the whole curve, and time its last point alone."""
    for node, (strategy, per_worker, servers) in itertools.product(NODES, LAYOUTS):
        facts = question(graph, node, 1, per_worker, 1000)
        predict = partial(predict_scaling, facts, strategy, grow_batch=True, servers=servers)
        seconds, processor_s = timed(partial(predict, (1000,)))
        points: tuple[ScalingPoint, ...] = predict(COUNTS)
        first = points[0]
        yield {
            "node": node,
            "megabits_per_s": 1000,
            "strategy": strategy,
            "servers": f"{per_worker} for each worker" if servers is None else servers,
            "seconds_for_1000_nodes": seconds,
            "processor_seconds_for_1000_nodes": processor_s,
            "step_s": {point.workers: point.step_s for point in points},
            "efficiency": {
                point.workers: point.samples_per_s / point.workers / first.samples_per_s for point in points
            },
            "useful_workers": useful_workers(points),
        }


def useful_workers(points: Sequence[ScalingPoint], least_gain: float = 0.05) -> int:
    """Return the fewest workers from which no larger number gains more than `least_gain` in samples per second."""
    best = max(point.samples_per_s for point in points)
    return min(point.workers for point in points if point.samples_per_s * (1 + least_gain) >= best)


def check(graph: ModelGraph) -> Iterator[dict[str, Any]]:
    """Play the same proposals message by message."""
    for node, megabits, (workers, servers) in itertools.product(NODES, MEGABITS, CHECKED):
        facts = question(graph, node, workers, servers, megabits)
        for strategy in ("ps",) if servers else ("ring", "ps"):
            proposal = next(iter(named(strategy).propose(facts)))
            begin_s = time.perf_counter()
            exact_s = simulate_proposal(facts, strategy, proposal).predicted.step_s
            took_s = time.perf_counter() - begin_s
            coarse_s = coarse_proposal_s(facts, proposal)
            yield {
                "node": node,
                "strategy": strategy,
                "workers": workers,
                "servers": servers,
                "megabits_per_s": megabits,
                "messages_s": exact_s,
                "coarse_s": coarse_s,
                "error": coarse_s / exact_s - 1,
                "message_level_took_s": took_s,
            }


def main() -> None:
    graph = resnet50()
    elements = sum(parameter.num_elements for parameter in graph.parameters)
    print(f"ResNet-50: {elements:,} parameters in {len(graph.parameters)} tensors")
    curves, checks = list(scale(graph)), list(check(graph))
    for curve in curves:
        layout = f"{curve['node']}, {curve['strategy']}, servers: {curve['servers']}"
        print(f"{layout}: {curve['seconds_for_1000_nodes']:.2f} s for 1,000 nodes; {curve['step_s']}")
    errors = sorted(abs(each["error"]) for each in checks)
    summary = {"median": statistics.median(errors), "largest": errors[-1], "cases": len(errors)}
    print(f"against the message-level simulator: {summary}")
    write({"parameters": elements, "curves": curves, "error": summary, "checks": checks}, __file__)


if __name__ == "__main__":
    main()
