"""A run and the question that it was planned from -> the run simulated again: as it was, and as it could be.

question   --simulate-->  what was predicted, part by part
  + what the run measured
calibrated --simulate-->  as it was; without each cause; with each change that a person could make
"""

from dataclasses import dataclass, replace

from nfold.analysis.calibrate import calibrated
from nfold.analysis.causes import findings, variants
from nfold.analysis.changes import Case
from nfold.analysis.communication import communication, limiting_links
from nfold.analysis.facts import Facts
from nfold.analysis.gains import Outlook, outlook
from nfold.analysis.playback import Playback, play_back
from nfold.analysis.simulated import simulated_time
from nfold.analysis.verdict import main_finding
from nfold.analysis.what_if import Scenario, load_seconds, what_if, with_load_seconds
from nfold.core.report import TimeParts
from nfold.planning.facts import Facts as Question

_NOTABLE = 0.01
"""Of a step: a cause that costs less is not simulated."""
_ROUNDS = 3
"""Under a quota a task takes longer by more than its work grew, so comparing once does not hit what was measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prospect:
    """A run's facts, completed by what was simulated."""

    facts: Facts
    case: Case | None = None
    """The run as it simulates; None where it cannot be."""
    outlook: Outlook | None = None
    predicted_time: TimeParts | None = None
    predicted_step_s: float | None = None
    """By the plan, on the links of the question."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Again:
    """A run simulated again."""

    facts: Facts
    """With what-ifs."""
    question: Question
    """That simulates like the run."""
    planned: Playback
    """What was promised."""
    as_it_was: Playback


def look_ahead(facts: Facts, question: Question) -> Prospect:
    """Simulate a run again, as it was and as it could be.

    An asynchronous run plays no schedule, so only its measurements speak.

    Args:
        facts: of the run, without what-ifs.
        question: what it was planned from.
    """
    if facts.plan.asynchrony is not None:
        return Prospect(facts=facts)
    again = look_back(facts, question)
    found = findings(again.facts)
    case = Case(
        plan=facts.plan,
        question=again.question,
        step_s=again.as_it_was.step_s,
        framing=max((use.framing for use in facts.channels), default=1.0),
    )
    return Prospect(
        facts=again.facts,
        case=case,
        outlook=outlook(case, found, main_finding(found), again.as_it_was.num_tasks),
        predicted_step_s=again.planned.step_s,
        predicted_time=simulated_time(again.planned.trace, facts.plan.workers),
    )


def look_back(facts: Facts, question: Question) -> Again:
    """Simulate a run again as it was, and without each cause; the facts that come back say so."""
    planned = as_it_was = play_back(facts.plan, question)
    full = limiting_links(facts, communication(facts))
    for _ in range(_ROUNDS):
        question = calibrated(facts, question, as_it_was, full)
        as_it_was = play_back(facts.plan, question)
    scenario = _with_own_input(as_it_was.scenario, facts)
    step_s = as_it_was.step_s if scenario is as_it_was.scenario else max(scenario.play().step_s)
    worth = variants(findings(facts), is_cut=facts.plan.placement.is_cut)
    judged = replace(facts, what_ifs=what_if(scenario, step_s, worth))
    return Again(facts=judged, question=question, planned=planned, as_it_was=as_it_was)


def _with_own_input(scenario: Scenario, facts: Facts) -> Scenario:
    """Let each worker wait for its own data where one waits longer than others: a question knows one time for all."""
    waited = {rank: facts.mean_s(rank, "input_s") for rank in load_seconds(scenario)}
    is_alike = max(waited.values(), default=0.0) - min(waited.values(), default=0.0) <= _NOTABLE * facts.step_s
    return scenario if is_alike else with_load_seconds(scenario, waited)
