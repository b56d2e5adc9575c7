"""Findings -> the one thing that holds a run back most, and what to type next."""

from collections.abc import Sequence

from nfold.analysis.finding import Finding
from nfold.core.report import Verdict
from nfold.errors import InternalError


def main_finding(findings: Sequence[Finding]) -> Finding:
    """Return the finding that is the verdict: memory that is nearly full, else what costs most.

    Memory comes first because it ends a run, where the others only slow it.

    Raises:
        InternalError: none of them can be a verdict.
    """
    candidates = [finding for finding in findings if finding.verdict]
    if not candidates:
        raise InternalError("no finding can be the verdict: compute always should")
    return next((finding for finding in candidates if finding.verdict == "memory"), candidates[0])


def verdict(finding: Finding) -> Verdict:
    """Return a finding as the verdict.

    Raises:
        InternalError: it only explains another one.
    """
    if finding.verdict is None:
        raise InternalError(f"{finding.kind} cannot be the verdict")
    return Verdict(kind=finding.verdict, place=finding.place, value=finding.value, unit=finding.unit, text=finding.text)
