"""Findings -> the one that is the verdict, what to do about it, and what that would gain.

The class of a verdict (link, compute, peer wait ..) is that of its finding: the rule that found it has given it, in
`analysis/rules`. Here it is only decided whose finding counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nfold.analysis.measured.gradient_ages import is_old, worth
from nfold.analysis.reporting.gains_of_changes import WORTH_SAYING, ChangeKind, PossibleGains
from nfold.analysis.reporting.own_limit import own_limit
from nfold.analysis.rules.finding import Finding
from nfold.analysis.rules.peer_wait import MORE_SAMPLES, UNEVEN
from nfold.analysis.rules.pipelines import NOTABLY, UNEVEN_STAGES
from nfold.core.cluster import Cluster
from nfold.core.plan import Plan
from nfold.core.report import Gain, Verdict, VerdictClass
from nfold.errors import InternalError

MOST_GAINS = 4
"""More in one sentence are not read."""
_CURES: dict[VerdictClass, tuple[ChangeKind, ...]] = {
    "link": ("strategy", "servers", "bytes", "link", "fewer workers"),
    "server": ("strategy", "servers", "bytes", "link"),
    "transport": ("strategy", "servers", "bytes", "cores", "batch"),
    "latency": ("strategy", "servers", "latency", "batch"),
    "bubble": ("chunks", "strategy", "batch", "fewer workers"),
    "peer wait": ("node", "bound", "fewer workers", "strategy", "input"),
    "compute": ("workers", "cores", "node", "fewer workers", "strategy"),
    "input": ("input",),
    "memory": ("memory",),
    "small batch": ("batch", "strategy"),
}
"""Which changes have to do with a cause; the others are listed, but are no advice."""

_NEEDLESS: tuple[VerdictClass, ...] = ("peer wait", "bubble")


def main_finding(findings: Sequence[Finding]) -> Finding:
    """Return the finding that is the verdict: memory that is nearly full, else what would win most.

    Memory comes first because it ends a run, where the others only slow it. Where computing costs most but is uneven,
    the verdict is the worker that the others wait for, or the bubble: they are what need not be.

    Raises:
        InternalError: none of them can be a verdict.
    """
    candidates = sorted((each for each in findings if each.verdict), key=lambda each: -each.weight_s)
    if not candidates:
        raise InternalError("no finding can be the verdict: compute always should")
    top = next((each for each in candidates if each.verdict == "memory"), candidates[0])
    waited = next((each for each in candidates if each.verdict in _NEEDLESS), None)
    if top.verdict == "compute" and waited is not None and waited.weight_s >= _least_share(waited) * top.weight_s:
        return waited
    return top


def _least_share(finding: Finding) -> float:
    """Of the computing: how much waiting is no accident. What the plan itself divides unevenly is none."""
    return NOTABLY - 1 if finding.sub_cause in (UNEVEN_STAGES, MORE_SAMPLES) else UNEVEN


def verdict(finding: Finding, possible_gains: PossibleGains | None, strategy: str, program: str) -> Verdict:
    """Return a finding as the verdict.

    Args:
        finding: what costs most.
        possible_gains: what changes would win; None where nothing was simulated.
        strategy: of the run.
        program: for commands, as a shell takes it.

    Raises:
        InternalError: it only explains another one.
    """
    if finding.verdict is None:
        raise InternalError(f"{finding.kind} cannot be the verdict")
    advice = _advice(finding, possible_gains, strategy)
    return Verdict(
        kind=finding.verdict,
        place=finding.place,
        value=finding.value,
        unit=finding.unit,
        text=f"{finding.head} {advice}".strip(),
        sub_cause=finding.sub_cause,
        advice=advice,
        gains=tuple(_gain(tried.gain, program) for tried in possible_gains.tried) if possible_gains else (),
        useful_workers=possible_gains.useful_workers if possible_gains else None,
    )


def next_command(finding: Finding, possible_gains: PossibleGains | None, plan: Plan, cluster: Cluster) -> str:
    """Return what to type next: what wins most by flags alone, else what answers a question that is still open.

    Comparing sizes and strategies is no open question any more where all of them were simulated. Empty where nothing
    is open: a plan of one rank has nothing to show. `{file}` in it stands for the user's program.
    """
    command = finding.next_command
    if possible_gains is not None:
        typed = [gain.command for gain in cures(finding, possible_gains) if gain.command]
        if typed:
            command = typed[0]
        elif command.startswith("nfold compare") and plan.world_size > 1:
            command = plan_again(plan)
        elif command.startswith("nfold compare") and possible_gains.useful_workers == 1 and len(cluster.nodes) == 1:
            command = ""  # with more nodes it is open: one worker's run was simulated with others beside it only
    return command


def plan_again(plan: Plan) -> str:
    """Return the command that shows what else was possible with as many ranks."""
    if plan.chunk_shares:
        return "nfold plan {file}"
    return f"nfold plan {{file}} -n {plan.workers}" + (f" --servers {plan.servers}" if plan.servers else "")


def cures(finding: Finding, possible_gains: PossibleGains) -> list[Gain]:
    """Return the gains that have to do with a finding, the largest first, of each kind the best."""
    kinds = _CURES[finding.verdict] if finding.verdict else ()
    best: dict[str, Gain] = {}
    for tried in possible_gains.tried:
        if tried.kind in kinds:
            best.setdefault(tried.kind, tried.gain)
    return list(best.values())


def _gain(gain: Gain, program: str) -> Gain:
    return replace(gain, command=gain.command.replace("{file}", program))


def _advice(finding: Finding, possible_gains: PossibleGains | None, strategy: str) -> str:
    if possible_gains is None:
        return finding.remedy
    if finding.verdict == "memory":
        saving = (_saving(tried.gain) for tried in possible_gains.tried if tried.kind == "memory")
        return " ".join([*saving, finding.remedy])
    best = sorted(cures(finding, possible_gains)[:MOST_GAINS], key=lambda gain: gain.speedup)
    if best:
        sentence = _sentence(best, possible_gains.useful_workers, strategy, possible_gains.ages)
        return f"{sentence} {finding.remedy}" if finding.verdict == "input" else sentence
    if finding.verdict == "compute":
        return _sentence((), possible_gains.useful_workers, strategy, {}) or _other_gain(possible_gains, strategy)
    return finding.remedy


def _other_gain(possible_gains: PossibleGains, strategy: str) -> str:
    """Name what wins most, though it has nothing to do with the cause; else say that nothing does."""
    best = [tried.gain for tried in possible_gains.tried if tried.gain.speedup >= WORTH_SAYING][:1]
    return _sentence(best, None, strategy, possible_gains.ages) or "No change that was simulated wins 2 %."


def _saving(gain: Gain) -> str:
    """`--chunks 8 (..) would take steps 1.03x as long.`"""
    return f"{gain.change} would take steps {1 / max(gain.speedup, 1e-9):.2f}x as long."


def _sentence(gains: Sequence[Gain], useful: int | None, strategy: str, ages: Mapping[int, int]) -> str:
    """`A would be 1.4x faster, B 1.8x, C 2.3x; more than 5 workers will not help.`

    The limit is that of the run's own strategy, which is named where another one is advised. Where gradients were old,
    so is what the steps are worth: `In steps a second, A would be ..`.
    """
    parts = [f"{gain.change} {'' if index else 'would be '}{_times(gain)}" for index, gain in enumerate(gains)]
    first = ", ".join(part + (" faster" if not index else "") for index, part in enumerate(parts))
    limit = f"{own_limit(gains, useful, strategy)} will not help" if useful else ""
    sentence = "; ".join(piece for piece in (first, limit) if piece)
    if first and is_old(ages):
        return f"In steps a second, {sentence}. {worth(ages)}"
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""


def _times(gain: Gain) -> str:
    about = "about " if gain.is_rough else ""
    digits = 0 if gain.speedup >= 10 else 1 if gain.speedup >= 1.1 else 2
    return f"{about}{gain.speedup:.{digits}f}x"
