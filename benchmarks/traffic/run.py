"""What must a step send? Bytes of every way to spread AlexNet, VGG-16 and ResNet-50, all counted in compiled schedules.

Work is counted in operations, so the figures are the same on every machine. The graphs beside this file were captured
from `programs/photographs.py`; `--capture` makes them anew.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counting import compared
from pipelined import most_even, sent_bytes

from nfold.core import codec
from nfold.core.chunks import chunk_sizes
from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement
from nfold.planning.choosing.search import plan
from nfold.planning.costs.machines import machines_of
from nfold.planning.hypergraph.cell_hypergraph import Hypergraph, owners_of, traffic
from nfold.planning.hypergraph.hypergraph_strategy import EPSILONS, ByHypergraph, hypergraph_of, limits_of
from nfold.planning.hypergraph.partition import Effort, partitions
from nfold.planning.inputs.facts import Facts
from nfold.planning.operator_parts.splitting import split_facts
from nfold.planning.reductions.data_parallel import even_owners
from nfold.planning.reductions.reductions_without_servers import reductions_of
from nfold.planning.scheduling.schedule_compiler import compile_schedule
from nfold.planning.stages.stage_strategies import Hybrid

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "programs"))
from environment import known, stamp, write
from programs.counted import GRAPHS, question

QUESTIONS = (("alexnet", 128), ("vgg16", 64), ("resnet50", 128))
RANKS = (2, 4, 8)
GOALS = {
    "alexnet": {2: (94.9, 97.4), 4: (95.4, 96.6), 8: (97.0, 97.4)},
    "vgg16": {2: (90.0, None), 4: (93.8, None), 8: (95.3, None)},
    "resnet50": {2: (8.0, None), 4: (22.0, None), 8: (52.0, None)},
}
"""Per cent less than a ring, and less than a parameter server."""
EPSILON = 0.05
"""How far the heaviest rank may be above the mean where nothing else is said; the strategy has its own tolerances."""
CHUNKS = 16
"""Of every way but the hypergraph's."""
SEARCHED_CHUNKS = (16, 32)
"""Finer chunks leave more room under the heaviest load, and a larger hypergraph to search."""
LONG = Effort(num_starts=12, num_seeds=24, num_cycles=8)
LONG_CHUNKS = (16, 24, 32)
NODE_PARTS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One way to spread a step."""

    way: str
    sent_bytes: int
    most_load: float
    """Heaviest rank over the mean."""
    chunks: int
    plan_s: float | None = None
    epsilon: float | None = None
    """How far above the mean it was allowed to be; None: nothing was asked."""


def measured(way: str, facts: Facts, owners: dict[str, tuple[int, ...]], plan_s: float | None = None) -> Result:
    """Count the messages of a placement's schedule."""
    chunks = len(next(iter(owners.values())))
    placement = Placement(num_chunks=chunks, world_size=facts.workers, owners=owners)
    schedule = compile_schedule(facts.graph, placement, reductions_of(facts, placement), batch_size=facts.batch_size)
    sizes = chunk_sizes(facts.batch_size, chunks)
    seconds = {size: facts.profiles[1].operators_s(size) for size in set(sizes)}
    loads = [0.0] * facts.workers
    for name, ranks in owners.items():
        for rank, size in zip(ranks, sizes, strict=True):
            loads[rank] += sum(seconds[size][name])
    most_load = max(loads) / sum(loads) * facts.workers
    return Result(way=way, sent_bytes=schedule.sent_bytes, most_load=most_load, chunks=chunks, plan_s=plan_s)


def ways(graph: ModelGraph, batch_size: int, workers: int, *, search_long: bool) -> Iterator[Result]:
    """Yield every way to spread one network."""
    facts = question(graph, batch_size, workers, CHUNKS)
    server = Result(
        way="parameter server", sent_bytes=2 * workers * graph.parameter_bytes, most_load=1.0, chunks=workers
    )
    yield server
    row = even_owners(workers, workers)
    yield measured("ring", replace(facts, chunks=workers), {op.name: row for op in graph.operators})
    yield from contiguous(replace(facts, chunks=1))
    yield pipelined(replace(facts, chunks=1))
    yield from hybrid(facts)
    yield node_wise(replace(facts, chunks=1))
    yield searched("hypergraph", facts, EPSILON, SEARCHED_CHUNKS)
    yield searched("hypergraph, load <= 1.25", facts, 0.25, SEARCHED_CHUNKS)
    yield from shipped(facts)
    if search_long:
        yield searched("hypergraph, long search", facts, EPSILON, LONG_CHUNKS, LONG)


def searched(
    way: str, facts: Facts, epsilon: float, chunk_counts: tuple[int, ...], effort: Effort | None = None
) -> Result:
    """Return the division with the least traffic among several numbers of chunks, planned in the time of all."""
    found = [divided(way, replace(facts, chunks=chunks), epsilon, effort) for chunks in chunk_counts]
    return replace(
        min(found, key=lambda each: each.sent_bytes), plan_s=sum(each.plan_s for each in found if each.plan_s)
    )


def divided(way: str, facts: Facts, epsilon: float, effort: Effort | None = None) -> Result:
    """Return the division with the least traffic."""
    begin = time.perf_counter()
    cells = hypergraph_of(facts, facts.chunks or CHUNKS)
    best = partitions(cells, limits_of(facts, machines_of(facts), epsilon), effort=effort)[0]
    plan_s = time.perf_counter() - begin
    result = replace(measured(way, facts, owners_of(cells, best.blocks), plan_s), epsilon=epsilon)
    if result.sent_bytes != best.traffic_bytes:
        raise SystemExit(f"{way}: {result.sent_bytes} bytes in the schedule, {best.traffic_bytes} in the hypergraph")
    return result


def node_wise(facts: Facts) -> Result:
    """Return model parallelism by groups of channels and rows: the whole batch at once, each operator in parts."""
    splits = {
        operator.name: min(NODE_PARTS, operator.channels.units)
        for operator in facts.graph.operators
        if operator.channels is not None and operator.flops_per_sample and operator.channels.units > 1
    }
    return divided("node-wise model parallelism", split_facts(facts, splits), EPSILON, LONG)


def contiguous(facts: Facts) -> Iterator[Result]:
    """Yield stages of whole operators, one rank each: the best balanced, and the fewest bytes within 1.25 of that."""
    cells = hypergraph_of(facts, 1)
    best = _stages(cells, facts.workers, float("inf"))
    least = max(_loads(cells, best, facts.workers))
    yield measured("layer-wise pipeline, best balance", facts, owners_of(cells, best))
    fewest = _stages(cells, facts.workers, 1.25 * least)
    yield measured("layer-wise pipeline, fewest bytes", facts, owners_of(cells, fewest))


def pipelined(facts: Facts) -> Result:
    """Return the most even split for torch.distributed.pipelining; its bytes are computed as `counting.py` proves."""
    seconds = {name: sum(pair) for name, pair in facts.profiles[1].operators_s(facts.batch_size).items()}
    split = most_even(facts.graph, seconds, facts.workers)
    owners = {
        operator.name: (sum(begin <= index for begin in split.begins),)
        for index, operator in enumerate(facts.graph.operators)
    }
    result = measured("torch.distributed.pipelining", facts, owners)
    sent = sent_bytes(facts.graph, split.begins, facts.batch_size)
    if result.sent_bytes != sent:
        raise SystemExit(f"{result.way}: {result.sent_bytes} bytes in the schedule, {sent} across its cuts")
    return result


def shipped(facts: Facts) -> Iterator[Result]:
    """Yield what the strategy does by its own tolerances: the plan that it runs, and its proposal of fewest bytes."""
    begin = time.perf_counter()
    strategy = ByHypergraph()
    chosen = plan(facts, strategy.name, among=(strategy,))
    plan_s = time.perf_counter() - begin
    yield measured("strategy hypergraph, its plan", split_facts(facts, chosen.splits), chosen.placement.owners, plan_s)
    found = [
        measured("strategy hypergraph, fewest bytes", split_facts(facts, each.splits), each.placement.owners)
        for each in strategy.propose(facts)
    ]
    yield min(found, key=lambda each: each.sent_bytes)


def _loads(cells: Hypergraph, blocks: list[int], workers: int) -> list[float]:
    loads = [0.0] * workers
    for block, seconds in zip(blocks, cells.seconds, strict=True):
        loads[block] += seconds
    return loads


def _stages(cells: Hypergraph, workers: int, most_s: float) -> list[int]:
    """Cut a row of groups exactly: the least heaviest stage, or with a limit on that the fewest bytes."""
    count, bytes_at = len(cells.groups), [0] * (len(cells.groups) + 1)
    for end in range(1, count):
        bytes_at[end] = traffic(cells, [int(group >= end) for group in range(count)])
    best: list[dict[int, tuple[float, float, list[int]]]] = [{0: (0.0, 0.0, [])}]
    for _ in range(workers):
        following: dict[int, tuple[float, float, list[int]]] = {}
        for begin, (heaviest, sent, cuts) in best[-1].items():
            for end in range(begin + 1, count + 1):
                load = sum(cells.seconds[begin:end])
                if load > most_s * (1 + 1e-9):
                    break
                entry = (max(heaviest, load) if most_s == float("inf") else 0.0, sent + bytes_at[end], [*cuts, end])
                following[end] = min(entry, following.get(end, entry))
        best.append(following)
    cuts = best[-1][count][2]
    return [sum(end <= group for end in cuts) for group in range(count)]


def hybrid(facts: Facts) -> Iterator[Result]:
    """Yield the stages x replicas with the fewest bytes of those that are proposed."""
    found = [measured("stages x replicas", facts, each.placement.owners) for each in Hybrid().propose(facts)]
    if found:
        yield min(found, key=lambda each: each.sent_bytes)


def less(result: Result, than: float) -> float:
    """Per cent."""
    return round(100 * (1 - result.sent_bytes / than), 2)


def report(name: str, batch_size: int, workers: int, graph: ModelGraph, *, search_long: bool) -> dict[str, Any]:
    """Run and print one network on so many ranks."""
    ring, server = 2 * (workers - 1) * graph.parameter_bytes, 2 * workers * graph.parameter_bytes
    rows = []
    print(f"\n{name}, batch {batch_size}, {workers} ranks: ring {ring / 1e6:.0f} MB")
    for each in ways(graph, batch_size, workers, search_long=search_long):
        planned = "" if each.plan_s is None else f"  planned in {each.plan_s:.2f} s"
        print(
            f"  {each.way:36} {each.sent_bytes / 1e6:8.1f} MB  {less(each, ring):8.2f} % < ring  "
            f"{less(each, server):7.2f} % < server  max/avg {each.most_load:.3f}{planned}",
            flush=True,
        )
        rows.append(
            {
                "way": each.way,
                "sent_bytes": each.sent_bytes,
                "less_than_ring_percent": less(each, ring),
                "less_than_server_percent": less(each, server),
                "max_over_mean_load": round(each.most_load, 4),
                "chunks": each.chunks,
                "plan_s": each.plan_s and round(each.plan_s, 3),
                "epsilon": each.epsilon,
            }
        )
    goal = GOALS[name][workers]
    return {
        "network": name,
        "batch_size": batch_size,
        "ranks": workers,
        "goal_percent": goal,
        **stamp(),
        "ways": rows,
    }


def captured(name: str) -> ModelGraph:
    """Capture a network from its program, and keep its graph beside this file."""
    import photographs

    from nfold.capture.capture import capture_program

    program = getattr(photographs, name)()
    graph = capture_program(program.model(), program, program.train_data()).graph
    codec.save(graph, GRAPHS / f"{name}.json")
    return graph


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capture", action="store_true", help="capture the networks anew: a minute each")
    parser.add_argument("--networks", default=",".join(name for name, _ in QUESTIONS))
    parser.add_argument("--quick", action="store_true", help="without the long search, nothing counted")
    parser.add_argument("--count", action="store_true", help="only count what torch.distributed.pipelining sends")
    arguments = parser.parse_args()
    result = kept()
    if arguments.count or not arguments.quick:
        result["pipelining"] = compared()
        keep(result)
    for name, batch_size in () if arguments.count else QUESTIONS:
        if name in arguments.networks.split(","):
            graph = captured(name) if arguments.capture else codec.load(ModelGraph, GRAPHS / f"{name}.json")
            found = [report(name, batch_size, ranks, graph, search_long=not arguments.quick) for ranks in RANKS]
            result["results"] = [each for each in result["results"] if each["network"] != name] + found
            keep(result)


def kept() -> dict[str, Any]:
    """Return what result.json has: networks that are not asked for stay as they were."""
    before = known(__file__)
    return {"results": before.get("results", []), "pipelining": before.get("pipelining", [])}


def keep(result: dict[str, Any]) -> None:
    """Write result.json, with the tolerances under which figures were found."""
    write({"epsilon": EPSILON, "strategy_epsilons": EPSILONS, **result}, __file__)


if __name__ == "__main__":
    main()
