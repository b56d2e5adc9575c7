"""A run and the question that it was planned from -> the run simulated again: as it was, and as it could be.

question   --simulate-->  what was predicted, part by part
  + what the run measured
calibrated --simulate-->  as it was; without each cause; with each change that a person could make
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from nfold.analysis.measured.channel_use import ChannelUse
from nfold.analysis.measured.measured_facts import MeasuredFacts
from nfold.analysis.reporting.gains_of_changes import PossibleGains, possible_gains
from nfold.analysis.reporting.verdict import main_finding
from nfold.analysis.resimulating.asynchronous_playback import calibrated_drift, drift_back, drifts_without, num_tasks
from nfold.analysis.resimulating.calibrate import calibrated
from nfold.analysis.resimulating.changes import Case
from nfold.analysis.resimulating.playback import Playback, play_back
from nfold.analysis.resimulating.simulated_parts import simulated_time
from nfold.analysis.resimulating.without_each_cause import load_seconds, what_if, with_load_seconds
from nfold.analysis.rules.causes import findings, variants
from nfold.analysis.rules.communication import communication, limiting_links
from nfold.core.plan import Plan
from nfold.core.report import TimeParts
from nfold.planning.asynchronous.asynchronous_simulation import SimulatedRun
from nfold.planning.costs.scenario import Scenario
from nfold.planning.inputs.facts import Facts as Question

T = TypeVar("T", Playback, SimulatedRun)

_NOTABLE = 0.01
"""Of a step: a cause that costs less is not simulated."""
_LIKE = 1.5
"""Times. In a drift, who waits for whom follows from when things happen, so one of another pace is another run: its
error is no mere factor, as that of a schedule's steps is."""
_ROUNDS = 3
"""Under a quota a task takes longer by more than its work grew, so comparing once does not hit what was measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIfFacts:
    """A run's facts, completed by what was simulated."""

    facts: MeasuredFacts
    case: Case | None = None
    """The run as it simulates; None where it cannot be."""
    possible_gains: PossibleGains | None = None
    """None where no simulation is like the run."""
    predicted_time: TimeParts | None = None
    predicted_step_s: float | None = None
    """By the plan, on the links of the question."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resimulated:
    """A run simulated again."""

    facts: MeasuredFacts
    """With what-ifs."""
    question: Question
    """That simulates like the run."""
    as_it_was: Playback | SimulatedRun
    num_tasks: int
    """That were played."""
    predicted_step_s: float
    predicted_time: TimeParts | None = None
    """None where steps have no parts, since workers drift apart."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """Of an asynchronous run: gradients by staleness in updates, simulated."""
    is_like: bool = True
    """Whether changes of it say what changes of the run would win."""


def simulate_changes(facts: MeasuredFacts, question: Question) -> WhatIfFacts:
    """Simulate a run again, as it was and as it could be.

    Args:
        facts: of the run, without what-ifs.
        question: what it was planned from.

    Raises:
        ClusterError: two ranks that talk have no link between them, by the question.
        InternalError: the plan cannot be played to its end.
    """
    again = simulate_as_it_was(facts, question)
    found = findings(again.facts)
    case = Case(
        plan=facts.plan,
        question=again.question,
        step_s=again.as_it_was.step_s,
        framing=max((use.framing for use in facts.channels), default=1.0),
        ages=again.ages,
    )
    main, ages = main_finding(found), facts.trace.ages
    return WhatIfFacts(
        facts=again.facts,
        case=case,
        possible_gains=possible_gains(case, found, main, again.num_tasks, ages) if again.is_like else None,
        predicted_step_s=again.predicted_step_s,
        predicted_time=again.predicted_time,
    )


def simulate_as_it_was(facts: MeasuredFacts, question: Question) -> Resimulated:
    """Simulate a run again as it was, and without each cause; the facts that come back say so.

    Takes and raises the same as `simulate_changes`.
    """
    return _look_at_steps(facts, question) if facts.plan.asynchrony is None else _look_at_drift(facts, question)


def _look_at_drift(facts: MeasuredFacts, question: Question) -> Resimulated:
    question, planned, as_it_was = _fitted(facts, question, drift_back, calibrated_drift)
    what_ifs = drifts_without(facts.plan, question, as_it_was.step_s, variants(findings(facts)))
    return Resimulated(
        facts=replace(facts, what_ifs=what_ifs),
        question=question,
        as_it_was=as_it_was,
        num_tasks=num_tasks(facts.plan),
        predicted_step_s=planned.step_s,
        ages=as_it_was.staleness,
        is_like=1 / _LIKE <= as_it_was.step_s / facts.step_s <= _LIKE,
    )


def _look_at_steps(facts: MeasuredFacts, question: Question) -> Resimulated:
    question, planned, as_it_was = _fitted(facts, question, play_back, calibrated)
    scenario = _with_own_input(as_it_was.scenario, facts)
    step_s = as_it_was.step_s if scenario is as_it_was.scenario else max(scenario.play().step_s)
    worth = variants(findings(facts), is_cut=facts.plan.placement.is_cut)
    return Resimulated(
        facts=replace(facts, what_ifs=what_if(scenario, step_s, worth)),
        question=question,
        as_it_was=as_it_was,
        num_tasks=as_it_was.num_tasks,
        predicted_step_s=planned.step_s,
        predicted_time=simulated_time(planned.trace, facts.plan.workers),
    )


def _fitted(
    facts: MeasuredFacts,
    question: Question,
    play: Callable[[Plan, Question], T],
    calibrate: Callable[[MeasuredFacts, Question, T, Iterable[ChannelUse]], Question],
) -> tuple[Question, T, T]:
    """Return the question that simulates like the run, what was promised, and the run as it simulates."""
    planned = as_it_was = play(facts.plan, question)
    full = limiting_links(facts, communication(facts))
    for _ in range(_ROUNDS):
        question = calibrate(facts, question, as_it_was, full)
        as_it_was = play(facts.plan, question)
    return question, planned, as_it_was


def _with_own_input(scenario: Scenario, facts: MeasuredFacts) -> Scenario:
    """Let each worker wait for its own data where one waits longer than others: a question knows one time for all."""
    waited = {rank: facts.mean_s(rank, "input_s") for rank in load_seconds(scenario)}
    is_alike = max(waited.values(), default=0.0) - min(waited.values(), default=0.0) <= _NOTABLE * facts.step_s
    return scenario if is_alike else with_load_seconds(scenario, waited)
