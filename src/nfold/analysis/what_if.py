"""The same step simulated again, each time without one cause of lost time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.schedule import Schedule, TaskKind
from nfold.simulation import simulate

AS_PLANNED = "as planned"
"""Key of the step with all its causes."""

TaskSeconds = Mapping[tuple[int, int], float]

_ANY_BANDWIDTH = 1e15
_ANY_CORES = 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """Everything that decides how long a simulated step takes."""

    schedule: Schedule
    task_seconds: TaskSeconds
    cluster: Cluster
    nodes: tuple[str, ...]
    threads: tuple[int, ...]

    def step_s(self) -> float:
        """Simulate one step."""
        trace = simulate(
            self.schedule,
            task_seconds=self.task_seconds,
            cluster=self.cluster,
            nodes=self.nodes,
            threads=self.threads,
        )
        return max(trace.step_s)


def what_if(
    schedule: Schedule,
    *,
    task_seconds: TaskSeconds,
    cluster: Cluster,
    nodes: tuple[str, ...],
    threads: tuple[int, ...],
) -> dict[str, float]:
    """Return simulated step seconds as planned and without each cause; `causes` takes them as they are."""
    scenario = Scenario(schedule=schedule, task_seconds=task_seconds, cluster=cluster, nodes=nodes, threads=threads)
    return {name: change(scenario).step_s() for name, change in VARIANTS.items()}


def _without_network(scenario: Scenario) -> Scenario:
    free = Channel(latency_s=0.0, bandwidth_bytes_per_s=_ANY_BANDWIDTH, origin="declared")
    return _with_channels(scenario, lambda channel: free)


def _without_latency(scenario: Scenario) -> Scenario:
    return _with_channels(scenario, lambda channel: replace(channel, latency_s=0.0, cpu_s_per_message=0.0))


def _with_even_load(scenario: Scenario) -> Scenario:
    """Give every rank that computes the mean compute time of them all."""
    cluster, nodes = scenario.cluster, scenario.nodes
    kinds = _kinds(scenario.schedule)
    loads: dict[int, float] = {}
    for key, seconds in scenario.task_seconds.items():
        if kinds.get(key) in ("F", "B") and seconds > 0:
            loads[key[0]] = loads.get(key[0], 0.0) + seconds / cluster.node(nodes[key[0]]).speed
    mean_s = sum(loads.values()) / max(1, len(loads))
    even = {
        key: seconds * mean_s / loads[key[0]] if kinds.get(key) in ("F", "B") and seconds > 0 else seconds
        for key, seconds in scenario.task_seconds.items()
    }
    return replace(scenario, task_seconds=even)


def _with_own_cores(scenario: Scenario) -> Scenario:
    return _with_nodes(scenario, lambda node: replace(node, cores=_ANY_CORES, crowding=(1.0,)))


def _without(kind: TaskKind) -> Callable[[Scenario], Scenario]:
    def change(scenario: Scenario) -> Scenario:
        kinds = _kinds(scenario.schedule)
        free = {key: 0.0 if kinds.get(key) == kind else value for key, value in scenario.task_seconds.items()}
        return replace(scenario, task_seconds=free)

    return change


def _with_channels(scenario: Scenario, change: Callable[[Channel], Channel]) -> Scenario:
    return _with_nodes(
        scenario,
        lambda node: replace(
            node,
            local=change(node.local),
            uplink=node.uplink and change(node.uplink),
            downlink=node.downlink and change(node.downlink),
        ),
    )


def _with_nodes(scenario: Scenario, change: Callable[[Node], Node]) -> Scenario:
    return replace(scenario, cluster=Cluster(nodes=tuple(change(node) for node in scenario.cluster.nodes)))


def _kinds(schedule: Schedule) -> dict[tuple[int, int], TaskKind]:
    return {(rank.rank, task.id): task.kind for rank in schedule.ranks for task in rank.tasks}


VARIANTS: dict[str, Callable[[Scenario], Scenario]] = {
    AS_PLANNED: lambda scenario: scenario,
    "network": _without_network,
    "latency": _without_latency,
    "peer wait": _with_even_load,
    "shared cores": _with_own_cores,
    "input": _without("LOAD"),
    "update": _without("UPDATE"),
}
"""What is taken away, by the name under which `causes` looks for it."""
