"""Sums a run up: what it kept, where its seconds went, and its report."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nfold.analysis.reporting.run_report import Result, report
from nfold.core.job import Known
from nfold.core.member_event import MemberEvent
from nfold.core.plan import Plan
from nfold.core.report import DataPlaces, PlacedShare, Report
from nfold.core.residency import PlacedData
from nfold.core.trace import RankUsage, ReductionParts, StepParts, StepTrace, Trace
from nfold.errors import InternalError
from nfold.planning.inputs.facts import Facts
from nfold.program import Program, ProgramSource
from nfold.runtime.control.commands import LinksChanged, Measured, Moved
from nfold.runtime.control.spool import Arrived
from nfold.verbs.options.option_checks import Options
from nfold.verbs.results.phases import Phases
from nfold.verbs.results.thinning import SystemSamples, Thinned
from nfold.verbs.run_folder.files import EMULATED
from nfold.verbs.run_folder.folder import RunFolder

MOST_PARTS = 8000
MOST_REDUCTIONS = 20_000
"""Rows of all ranks together: about 3 MB of trace.json."""
MOST_SAMPLES = 4000
LEAST_JUDGED_STEPS = 10
"""Fewer steps between two changes of the links say too little to judge a run by."""


@dataclass(slots=True)
class RunOutcome:
    """The result of a run as far as it came."""

    measured: Measured | None = None
    """Of a job that trains nothing."""
    known: Known | None = None
    plan: Plan | None = None
    steps_per_epoch: int = 0
    total_steps: int = 0
    """0: nothing is planned yet."""
    foretold: tuple[str, ...] = ()
    """What is known of the run before it begins, beside what the plan says."""
    parts: "Thinned[StepParts]" = field(default_factory=lambda: Thinned(MOST_PARTS))
    reductions: "Thinned[ReductionParts]" = field(default_factory=lambda: Thinned(MOST_REDUCTIONS))
    samples: SystemSamples = field(default_factory=lambda: SystemSamples(MOST_SAMPLES))
    traces: list[StepTrace] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    metrics: dict[str, float | None] = field(default_factory=dict)
    last_step: int = 0
    trace: Trace | None = None
    report: Report | None = None
    model: Arrived | None = None
    interrupted: bool = False
    changes: list[tuple[LinksChanged, float]] = field(default_factory=list)
    """Of the links, each with when it was noticed, in seconds since training began or went on."""
    staleness: dict[str, int] = field(default_factory=dict)
    placed: PlacedData | None = None
    """Where its data live; None: every rank reads all of them."""
    moves_samples: bool = False
    """Whether samples began to move: the run can go on with those that have come, though no step is done."""
    moved: list[Moved] = field(default_factory=list)
    """Samples that came to ranks."""
    events: list[MemberEvent] = field(default_factory=list)
    """Hosts that came and went, those of earlier sessions too."""

    def begin_anew(self, known: Known, plan: Plan) -> None:
        """Judge the run from now on: later steps are played by another plan."""
        self.known, self.plan = known, plan
        self.parts, self.reductions = Thinned(MOST_PARTS), Thinned(MOST_REDUCTIONS)
        self.samples, self.traces, self.changes = SystemSamples(MOST_SAMPLES), [], []

    def keep_time(self, phases: Phases, phase: str) -> None:
        """Add to the ledger what came after it was made."""
        spent = phases.book(phase)
        if self.trace is None or self.report is None:
            raise InternalError("a run that was not summed up has no ledger")
        self.trace = replace(self.trace, ledger=spent)
        self.report = replace(self.report, ledger={**self.report.ledger, phase: spent[phase]})


def summarise(
    outcome: RunOutcome, usage: Sequence[RankUsage], spent: dict[str, float], script: str, alone: float | None
) -> tuple[Trace, Report]:
    """Give an outcome its trace and report, and return them.

    Args:
        outcome: of a run with at least one step.
        usage: of every rank.
        spent: the wall time of the run by phase.
        script: for the next command.
        alone: samples per second of a plain single-device run; None: as profiled.
    """
    plan, known, (change, changed_s) = outcome.plan, outcome.known, judged_change(outcome)
    if plan is None or known is None:
        raise InternalError("a run without a plan cannot be summed up")
    if change is not None:
        known = outcome.known = replace(known, cluster=change.cluster)
    trace = Trace(
        parts=outcome.parts.rows,
        steps=tuple(outcome.traces),
        usage=tuple(usage),
        reductions=outcome.reductions.rows,
        samples=outcome.samples.rows,
        staleness=outcome.staleness,
        ledger=spent,
        is_asynchronous=plan.asynchrony is not None,
        num_steps=outcome.parts.num_steps,
        since_step=change.next_step if change else 0,
        since_s=changed_s,
    )
    recent = outcome.losses[-outcome.steps_per_epoch :]
    made = report(
        plan,
        trace,
        known.cluster,
        Result(
            alone_samples_per_s=alone_samples_per_s(known, plan, alone),
            final_loss=sum(recent) / len(recent) if recent else None,
            metrics=outcome.metrics,
            program=script,
        ),
        question=question_of(plan, known),
    )
    made = replace(made, places=places_of(outcome), events=tuple(outcome.events))
    outcome.trace, outcome.report = trace, made
    return trace, made


def places_of(outcome: RunOutcome) -> DataPlaces | None:
    """Return where the data of a run live, and what moved; None: every rank reads all of them."""
    if outcome.placed is None:
        return None
    before = [each for each in outcome.moved if not each.beside_training]
    plan = outcome.placed.plan
    return DataPlaces(
        method=plan.method,
        nodes=tuple(PlacedShare(node=each.node, held=each.held, holds=each.holds) for each in plan.nodes),
        before_bytes=sum(each.num_bytes for each in before),
        before_s=sum(each.seconds for each in before),
        beside_bytes=sum(each.num_bytes for each in outcome.moved if each.beside_training),
        predicted_s=plan.cost.move_s if plan.moving == "before training" else None,
    )


def typed(source: ProgramSource | Program, options: Options, folder: RunFolder | None) -> str:
    """Return the command that runs the program where it ran, without the flags that a suggestion changes."""
    script = shlex.quote(source.short) if isinstance(source, ProgramSource) else "FILE.py"
    kept = (" --tls" if options.tls else "") + (f" --place {options.place}" if options.place else "")
    kept += " --exact" if options.exact else ""
    if options.target is not None:
        return f"{script} {options.typed_hosts_that_stay}{kept}"
    file = options.cluster_file
    if options.emulated is not None and not file and folder is not None:
        file = str(folder.path / EMULATED)
    if not file:
        return f"{script}{kept}"
    return f"{script} --emulate {shlex.quote(file)}{kept}"


def judged_change(outcome: RunOutcome) -> tuple[LinksChanged | None, float]:
    """Return the change of the links from which on a run is judged, and when it was noticed.

    It is the last one with enough steps before the next; the few that come after that one are judged with them. None
    where there was no such change, and the whole run counts.
    """
    end = outcome.last_step
    for change, at_s in reversed(outcome.changes):
        if end - change.next_step >= LEAST_JUDGED_STEPS:
            return change, at_s
        end = change.next_step
    return None, 0.0


def alone_samples_per_s(known: Known, plan: Plan, measured: float | None) -> float:
    """Return what plain processes would do together, one with the whole of each node in use.

    Args:
        known: profiles and nodes.
        plan: which nodes are in use.
        measured: what one did on the first of them; None: the profiles say what it would.
    """
    each = {name: _plain_samples_per_s(known, name, plan.batch_size) for name in dict.fromkeys(plan.nodes)}
    together = sum(each.values())
    return together if measured is None else together * measured / each[plan.nodes[0]]


def _plain_samples_per_s(known: Known, name: str, batch_size: int) -> float:
    """Return the throughput of the best plain process on a node: with as many threads as it has cores, or fewer."""
    node = known.cluster.node(name)
    fewest = min(known.profiles)
    usable = (profile for count, profile in known.profiles.items() if count <= max(fewest, node.cores))
    steps_s = (
        (sum(profile.whole_s(batch_size)) + profile.update.median_s) / node.speed
        + profile.load_s(batch_size, node.speed)
        for profile in usable
    )
    return batch_size / min(steps_s)


def question_of(plan: Plan, known: Known) -> Facts:
    """Return the question that a plan answers, so that it can be simulated again."""
    rules = plan.asynchrony
    return Facts(
        graph=known.graph,
        profiles=known.profiles,
        cluster=known.cluster,
        nodes=plan.nodes,
        workers=plan.workers,
        servers=plan.servers,
        batch_size=plan.batch_size,
        chunks=plan.chunks,
        chunk_shares=plan.chunk_shares,
        staleness=rules.bound if rules is not None else None,
        staleness_aware=rules is not None and rules.staleness_aware,
        evaluates=plan.evaluates,
        keeps_snapshots=plan.keeps_snapshots,
        fraction_bits=next((each.fraction_bits for each in plan.reductions), None),
    )
