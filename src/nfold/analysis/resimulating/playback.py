"""A plan played once more in virtual time, with the measurements of any question."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nfold.core.plan import Plan
from nfold.core.trace import StepTrace
from nfold.planning.costs.scenario import Scenario, scenario_of
from nfold.planning.inputs.facts import Facts as Question
from nfold.planning.operator_parts.splitting import split_facts

_MOST_MOMENTS = 4
_MANY_TASKS = 5_000
"""A larger schedule is simulated once: it takes a good part of a second, and in its long steps no one grant counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Playback:
    """A simulated step, and all that it follows from."""

    scenario: Scenario
    trace: StepTrace

    @property
    def step_s(self) -> float:
        """The slowest rank's."""
        return max(self.trace.step_s)

    @property
    def num_tasks(self) -> int:
        """Of all ranks: what a simulation costs grows with it."""
        return sum(len(rank.tasks) for rank in self.scenario.schedule.ranks)

    def steady_steps(self) -> Iterator[StepTrace]:
        """Yield the step as it goes when no pass takes longer than another: a mean over steps knows of no luck.

        Where nodes have quotas, these are granted at other moments in each step, so steps are played for several.
        Nodes begin their periods one after another in the order of the cluster, so turning that order is enough.
        """
        nodes = tuple(replace(node, unsteadiness=0.0) for node in self.scenario.cluster.nodes)
        several = self.num_tasks <= _MANY_TASKS and any(node.meets_its_quota for node in nodes)
        for turned in range(min(_MOST_MOMENTS, len(nodes)) if several else 1):
            cluster = replace(self.scenario.cluster, nodes=(*nodes[turned:], *nodes[:turned]))
            yield self.trace if cluster == self.scenario.cluster else replace(self.scenario, cluster=cluster).play()


def play_back(plan: Plan, question: Question) -> Playback:
    """Simulate a synchronous plan as it is, threads included.

    Raises:
        ClusterError: two ranks that talk have no link between them.
        InternalError: its schedule cannot be played to its end.
    """
    scenario = scenario_of(
        replace(split_facts(question, plan.splits), nodes=plan.nodes),
        plan.placement,
        plan.reductions,
        plan.threads,
        windows=plan.windows,
        paces=plan.paces,
        commits=plan.commits,
    )
    return Playback(scenario=scenario, trace=scenario.play())
