"""Facts -> everything that costs time in a step, the most expensive first, and what its absence would win."""

from collections.abc import Sequence
from dataclasses import replace

from nfold.analysis.measured.measured_facts import MeasuredFacts
from nfold.analysis.resimulating.without_each_cause import (
    AS_PLANNED,
    BUBBLE,
    COMPUTE,
    EVEN_LOAD,
    INPUT,
    LATENCY,
    NETWORK,
    OWN_CORES,
    OWN_INPUT,
    UPDATE,
)
from nfold.analysis.rules.communication import communication
from nfold.analysis.rules.finding import Finding
from nfold.analysis.rules.peer_wait import peer_wait
from nfold.analysis.rules.workers import compute, fixed_costs, memory, reading, shared_cores
from nfold.core.report import Cause

NETWORK_KINDS = frozenset({"link", "transport", "server", "latency"})
"""Causes of exposed communication; a run has at most one of them."""
_VARIANTS = {
    "link": NETWORK,
    "transport": NETWORK,
    "server": NETWORK,
    "latency": LATENCY,
    "peer wait": EVEN_LOAD,
    "shared cores": OWN_CORES,
    "input": INPUT,
    "update": UPDATE,
    "small batch": UPDATE,
    "bubble": BUBBLE,
}
"""Which simulated variant leaves a cause out."""
_OF_SUB_CAUSES = {"input": OWN_INPUT, "summing": ""}
"""The same of sub-causes that need another one; what a server sums is only measured, since no plan knows of it."""
_LEAST = 0.01
_RESEMBLES = 0.2
"""A simulated step that is further off than a fifth is not the run's, and says nothing of what the run would gain."""


def findings(facts: MeasuredFacts) -> tuple[Finding, ...]:
    """Return all findings, the most expensive first; ties keep the order of the rules."""
    singles = [rule(facts) for rule in (compute, shared_cores, communication, peer_wait, reading, memory)]
    found = [finding for finding in singles if finding is not None] + fixed_costs(facts)
    weighed = [replace(finding, regained_s=_regained_s(finding, facts)) for finding in found]
    return tuple(sorted(weighed, key=lambda finding: -finding.lost_s))


def variants(found: Sequence[Finding], *, is_cut: bool = False) -> list[str]:
    """Return which variants are worth simulating: those of causes that cost at least 1 % of the step.

    Computing needs two, and whatever costs communication may turn out to be latency, or in a model that is cut a
    bubble.
    """
    step_s = sum(finding.lost_s for finding in found)
    named = {_variant(finding) for finding in found if finding.lost_s >= _LEAST * step_s} - {""}
    if named & {NETWORK, LATENCY}:
        named |= {NETWORK, LATENCY} | ({BUBBLE} if is_cut else set())
    return sorted(named | {EVEN_LOAD, COMPUTE})


def ranked_causes(found: Sequence[Finding], step_s: float) -> tuple[Cause, ...]:
    """Return the causes of a step's time, the most expensive first.

    Args:
        found: all findings, in that order.
        step_s: of the mean step.
    """
    return tuple(
        Cause(
            kind=finding.kind,
            place=finding.place,
            lost_s=finding.lost_s,
            share=finding.lost_s / step_s if step_s > 0 else 0.0,
            what_if_speedup=_speedup(finding, step_s),
            evidence=finding.evidence,
        )
        for finding in found
    )


def _speedup(finding: Finding, step_s: float) -> float | None:
    """Step time with a cause over that without it; no step is without computing."""
    regained_s = finding.regained_s
    if finding.kind == "compute" or regained_s is None or regained_s >= step_s:
        return None
    return step_s / (step_s - regained_s)


def _variant(finding: Finding) -> str:
    return _OF_SUB_CAUSES.get(finding.sub_cause, _VARIANTS.get(finding.kind, ""))


def _regained_s(finding: Finding, facts: MeasuredFacts) -> float | None:
    """Seconds of the measured step that would be won without a cause.

    Computing goes last: what it costs is what it costs when it is even. Nothing wins more than what it takes itself and
    the waiting of workers that it may be the reason of: where a simulated step consists of more of a cause than the
    measured one did, that much of it was not there to be won. Only a worker whose bounded staleness others wait for
    wins its whole excess: they wait for it on average, and meanwhile it computes.
    """
    variants = facts.what_ifs
    whole_s = variants.get(AS_PLANNED, 0.0)
    if not whole_s or abs(whole_s - facts.step_s) > _RESEMBLES * facts.step_s:
        return None
    if finding.kind == "compute":
        return (variants[EVEN_LOAD] - variants[COMPUTE]) * facts.step_s / whole_s
    without_s = variants.get(_variant(finding))
    if without_s is None:
        return None
    won_s = (whole_s - without_s) * facts.step_s / whole_s
    if finding.kind == "peer wait" and facts.plan.asynchrony is not None:
        return won_s
    return min(won_s, finding.lost_s + _may_cause_s(finding, facts))


def _may_cause_s(finding: Finding, facts: MeasuredFacts) -> float:
    """Seconds of waiting in a step that may be due to a cause; those that it takes itself left out."""
    exposed_s, peer_wait_s = facts.parts.exposed_communication_s, facts.parts.peer_wait_s
    if finding.kind == "peer wait":
        return exposed_s  # the other wait is its own seconds, as others see them
    everybody_updates = not any(reduction.shares for reduction in facts.plan.reductions)
    if finding.kind == "input" or (_variant(finding) == UPDATE and everybody_updates):
        return 0.0  # all do it alike, and none for another
    return exposed_s + peer_wait_s
