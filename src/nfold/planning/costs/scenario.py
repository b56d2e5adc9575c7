"""All that decides how long a simulated step takes, made from a placement and from measurements."""

from collections.abc import Mapping
from dataclasses import dataclass

from nfold.core.cluster import Cluster
from nfold.core.placement import Placement, Reduction
from nfold.core.schedule import Schedule
from nfold.core.trace import StepTrace
from nfold.planning.costs.task_seconds import task_seconds
from nfold.planning.inputs.facts import Facts
from nfold.planning.scheduling.schedule_compiler import compile_schedule
from nfold.simulation import simulate

TaskSeconds = Mapping[tuple[int, int], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """A step that can be simulated: its schedule, the seconds of its tasks, and the machines."""

    schedule: Schedule
    task_seconds: TaskSeconds
    cluster: Cluster
    nodes: tuple[str, ...]
    threads: tuple[int, ...]
    load_waits: tuple[float, ...] = ()
    """Of each rank: the share of the seconds of LOADs in which no core is busy; empty: it never waits."""
    commits: bool = False
    """Whether ranks change their state only once all messages of the step are over."""

    def play(self) -> StepTrace:
        """Simulate one step.

        Raises:
            ClusterError, InternalError: as `simulate`.
        """
        return simulate(
            self.schedule,
            task_seconds=self.task_seconds,
            cluster=self.cluster,
            nodes=self.nodes,
            threads=self.threads,
            load_waits=self.load_waits,
            commits=self.commits,
        )


def scenario_of(
    facts: Facts,
    placement: Placement,
    reductions: tuple[Reduction, ...],
    threads: tuple[int, ...],
    *,
    windows: tuple[int, ...],
    paces: tuple[float, ...],
    commits: bool,
) -> Scenario:
    """Return a synchronous step, compiled, and timed by the profiles.

    Args:
        facts: about the operators that are placed: parts, if some are split.
        placement: of them.
        reductions: of their gradients.
        threads: of each rank.
        windows: chunks that each rank may have begun at once; empty: as many as keep it busy.
        paces: by which the order of each rank's cells is found; empty: all are equally fast.
        commits: whether ranks change their state only once all messages of the step are over.
    """
    profiles, nodes = facts.profiles_of(threads), facts.nodes[: placement.world_size]
    seconds = profiles[0].operators_s(facts.batch_size / placement.num_chunks)
    schedule = compile_schedule(
        facts.graph,
        placement,
        reductions,
        batch_size=facts.batch_size,
        operator_seconds=seconds if all(each.name in seconds for each in facts.graph.operators) else None,
        windows=windows,
        paces=paces,
        chunk_shares=facts.chunk_shares,
    )
    return Scenario(
        schedule=schedule,
        task_seconds=task_seconds(schedule, facts, profiles, threads),
        cluster=facts.cluster,
        nodes=nodes,
        threads=threads,
        load_waits=tuple(each.load_wait for each in profiles),
        commits=commits,
    )
