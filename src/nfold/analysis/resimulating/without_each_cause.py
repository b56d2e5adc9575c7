"""The same step simulated again, each time without one cause of lost time.

What a change of machines or plan would win is answered in `analysis/reporting/gains_of_changes.py`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from nfold.analysis.resimulating.even_work import evened, of_typical_s
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.schedule import Schedule
from nfold.core.tasks import MessageEnd, Send, SpanKind, chunk_of
from nfold.planning.costs.scenario import Scenario

AS_PLANNED = "as planned"
"""Key of the step with all its causes."""
NETWORK, LATENCY, EVEN_LOAD, OWN_CORES = "network", "latency", "peer wait", "shared cores"
COMPUTE, INPUT, UPDATE, OWN_INPUT, BUBBLE = "compute", "input", "update", "own input", "bubble"
"""Keys of the step without one of them."""

_ANY_BANDWIDTH = 1e15
_ANY_CORES = 1e9


def what_if(scenario: Scenario, as_planned_s: float, causes: Collection[str]) -> dict[str, float]:
    """Return simulated step seconds as planned and without each cause; `causes` takes them as they are.

    Args:
        scenario: with all its causes.
        as_planned_s: its simulated step.
        causes: keys of the variants to simulate.

    Raises:
        ClusterError, InternalError: as `simulate`.
    """
    found = {AS_PLANNED: as_planned_s}
    for name in causes:
        found[name] = min(as_planned_s, _even_load_s(scenario) if name == EVEN_LOAD else _changed_s(name, scenario))
    return found


def _changed_s(name: str, scenario: Scenario) -> float:
    changed = _VARIANTS[name](scenario)
    return float("inf") if changed == scenario else max(changed.play().step_s)


def without_network(node: Node) -> Node:
    """Return the node with links that take no time."""
    free = Channel(latency_s=0.0, bandwidth_bytes_per_s=_ANY_BANDWIDTH, origin="declared")
    return _with_channels(node, lambda channel: free)


def without_latency(node: Node) -> Node:
    """Return the node with links that begin at once; what ranks do for a message beside sending it stays."""
    return _with_channels(node, lambda channel: replace(channel, latency_s=0.0, cpu_s_per_message=0.0))


def with_own_cores(node: Node, threads: Sequence[int]) -> Node:
    """Return the node as if its ranks did not share it. A quota stays what it is for each: it was measured under it.

    Args:
        node: that they share.
        threads: of each of its ranks.
    """
    if not node.quota_period_s:
        return replace(node, cores=_ANY_CORES, crowding=(1.0,))
    cores, width = node.cores * max(1, len(threads)), max(threads, default=1)
    measured_under = max(1.0, width / node.cores) / max(1.0, width / cores)
    return replace(node, cores=cores, speed=node.speed * measured_under, crowding=(1.0,))


def _even_load_s(scenario: Scenario) -> float:
    """Return the step in which no rank that computes takes longer than a typical one, or than an even part of all.

    What a rank has too much goes to those with room. A schedule is ordered for its own division, though, so it may play
    another one badly: then the step counts that a pipeline of even stages would take, `longest (1 + (n - 1) / chunks)`.
    """
    kinds = _kinds(scenario.schedule)
    work_s: dict[int, float] = {}
    for key, seconds in scenario.task_seconds.items():
        if kinds.get(key) in ("F", "B") and seconds > 0:
            work_s[key[0]] = work_s.get(key[0], 0.0) + seconds
    even = evened(work_s, {rank: scenario.cluster.node(scenario.nodes[rank]).speed for rank in work_s})

    def played_s(factors: Mapping[int, float]) -> float:
        changed = {
            key: seconds * factors.get(key[0], 1.0) if kinds.get(key) in ("F", "B") else seconds
            for key, seconds in scenario.task_seconds.items()
        }
        return max(replace(scenario, task_seconds=changed).play().step_s)

    least_s = played_s(even.shorter)
    if even.moved == even.shorter:
        return least_s
    if not _is_cut(scenario.schedule):
        return played_s(even.moved)
    piped_s = even.longest_s * (1 + (len(work_s) - 1) / max(1, scenario.schedule.num_chunks))
    return max(least_s, min(played_s(even.moved), piped_s))


def _is_cut(schedule: Schedule) -> bool:
    """Whether chunks travel between ranks."""
    return any(isinstance(task, Send) and chunk_of(task) is not None for rank in schedule.ranks for task in rank.tasks)


def _without_input(scenario: Scenario) -> Scenario:
    """Let the data of a typical worker be there in time; what one waits beyond that is its own."""
    loads = load_seconds(scenario)
    typical_s = of_typical_s(loads.values())
    return with_load_seconds(scenario, {rank: max(0.0, seconds - typical_s) for rank, seconds in loads.items()})


def _with_even_input(scenario: Scenario) -> Scenario:
    """Let no rank wait for its data longer than a typical one."""
    loads = load_seconds(scenario)
    typical_s = of_typical_s(loads.values())
    return with_load_seconds(scenario, {rank: min(seconds, typical_s) for rank, seconds in loads.items()})


def load_seconds(scenario: Scenario) -> dict[int, float]:
    """Return how long each rank that reads or computes waits for the data of a step."""
    kinds = _kinds(scenario.schedule)
    loads = {rank: 0.0 for (rank, _), kind in kinds.items() if kind in ("LOAD", "F")}
    for key, seconds in scenario.task_seconds.items():
        if kinds.get(key) == "LOAD":
            loads[key[0]] += seconds
    return loads


def with_load_seconds(scenario: Scenario, seconds: Mapping[int, float]) -> Scenario:
    """Return the step in which some ranks wait so long for their data, spread evenly over what they load."""
    kinds = _kinds(scenario.schedule)
    counts = Counter(rank for (rank, _), kind in kinds.items() if kind == "LOAD")
    changed = {
        key: seconds[key[0]] / counts[key[0]] if kinds.get(key) == "LOAD" and key[0] in seconds else value
        for key, value in scenario.task_seconds.items()
    }
    return replace(scenario, task_seconds=changed)


def _without_bubble(scenario: Scenario) -> Scenario:
    """Let nobody wait for what another rank computes: each plays its own tasks one after another."""
    ranks = []
    for rank in scenario.schedule.ranks:
        computing = {task.id for task in rank.tasks if not isinstance(task, MessageEnd)}
        tasks = (replace(task, after=tuple(each for each in task.after if each in computing)) for task in rank.tasks)
        ranks.append(replace(rank, tasks=tuple(task for task in tasks if task.id in computing)))
    return replace(scenario, schedule=replace(scenario.schedule, ranks=tuple(ranks)))


def _with_own_cores(scenario: Scenario) -> Scenario:
    """Let ranks of one node not share it."""

    def change(node: Node) -> Node:
        threads = [each for each, name in zip(scenario.threads, scenario.nodes, strict=True) if name == node.name]
        return with_own_cores(node, threads)

    return _with_nodes(scenario, change)


def _without(*without: SpanKind) -> Callable[[Scenario], Scenario]:
    def change(scenario: Scenario) -> Scenario:
        kinds = _kinds(scenario.schedule)
        free = {key: 0.0 if kinds.get(key) in without else value for key, value in scenario.task_seconds.items()}
        return replace(scenario, task_seconds=free)

    return change


def _with_channels(node: Node, change: Callable[[Channel], Channel]) -> Node:
    return replace(
        node,
        local=change(node.local),
        uplink=node.uplink and change(node.uplink),
        downlink=node.downlink and change(node.downlink),
    )


def _with_nodes(scenario: Scenario, change: Callable[[Node], Node]) -> Scenario:
    return replace(scenario, cluster=Cluster(nodes=tuple(change(node) for node in scenario.cluster.nodes)))


def _kinds(schedule: Schedule) -> dict[tuple[int, int], SpanKind]:
    return {(rank.rank, task.id): task.kind for rank in schedule.ranks for task in rank.tasks}


_VARIANTS: dict[str, Callable[[Scenario], Scenario]] = {
    NETWORK: lambda scenario: _with_nodes(scenario, without_network),
    LATENCY: lambda scenario: _with_nodes(scenario, without_latency),
    OWN_CORES: _with_own_cores,
    COMPUTE: _without("F", "B"),
    INPUT: _without_input,
    UPDATE: _without("UPDATE"),
    OWN_INPUT: _with_even_input,
    BUBBLE: _without_bubble,
}
"""What is taken away, by the name under which `causes` looks for it; how uneven work is evened stands above."""
