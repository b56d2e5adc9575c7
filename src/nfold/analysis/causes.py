"""Facts -> everything that costs time in a step, the most expensive first, and what its absence would win."""

from collections.abc import Mapping

from nfold.analysis.communication import communication
from nfold.analysis.facts import Facts
from nfold.analysis.finding import Finding
from nfold.analysis.what_if import AS_PLANNED
from nfold.analysis.workers import compute, fixed_costs, memory, peer_wait, reading, shared_cores
from nfold.core.report import Cause

_VARIANTS = {
    "link": "network",
    "transport": "network",
    "server": "network",
    "latency": "latency",
    "peer wait": "peer wait",
    "shared cores": "shared cores",
    "input": "input",
    "update": "update",
    "small batch": "update",
}
"""Which simulated variant leaves a cause out."""


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Return all findings, the most expensive first; ties keep the order of the rules."""
    singles = [rule(facts) for rule in (compute, shared_cores, communication, peer_wait, reading, memory)]
    found = [finding for finding in singles if finding is not None] + fixed_costs(facts)
    return tuple(sorted(found, key=lambda finding: -finding.lost_s))


def ranked_causes(facts: Facts, what_ifs: Mapping[str, float]) -> tuple[Cause, ...]:
    """Return the causes of a step's time, the most expensive first.

    Args:
        facts: the run.
        what_ifs: simulated step seconds by variant, as `what_if` returns them; may be empty.
    """
    return tuple(
        Cause(
            kind=finding.kind,
            place=finding.place,
            lost_s=finding.lost_s,
            share=finding.lost_s / facts.step_s if facts.step_s > 0 else 0.0,
            what_if_speedup=_speedup(finding.kind, what_ifs),
            evidence=finding.evidence,
        )
        for finding in findings(facts)
    )


def _speedup(kind: str, what_ifs: Mapping[str, float]) -> float | None:
    with_it, without = what_ifs.get(AS_PLANNED), what_ifs.get(_VARIANTS.get(kind, ""))
    return with_it / without if with_it and without else None
