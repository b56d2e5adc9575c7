"""A plan played once more in virtual time, with the measurements of any question."""

from dataclasses import dataclass

from nfold.analysis.what_if import Scenario
from nfold.core.plan import Plan
from nfold.core.trace import StepTrace
from nfold.planning.costs import task_seconds
from nfold.planning.facts import Facts as Question
from nfold.planning.schedule import compile_schedule
from nfold.planning.splitting import split_facts


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


def play_back(plan: Plan, question: Question) -> Playback:
    """Simulate a synchronous plan as it is, threads included."""
    question = split_facts(question, plan.splits)
    least = min(question.profiles)
    profiles = tuple(question.profiles.get(threads, question.profiles[least]) for threads in plan.threads)
    operator_seconds = profiles[0].operators_s(plan.batch_size / plan.chunks)
    known = all(operator.name in operator_seconds for operator in question.graph.operators)
    schedule = compile_schedule(
        question.graph,
        plan.placement,
        plan.reductions,
        batch_size=question.batch_size,
        operator_seconds=operator_seconds if known else None,
    )
    scenario = Scenario(
        schedule=schedule,
        task_seconds=task_seconds(schedule, question.graph, profiles, question.batch_size),
        cluster=question.cluster,
        nodes=plan.nodes[: plan.world_size],
        threads=plan.threads,
    )
    return Playback(scenario=scenario, trace=scenario.play())
