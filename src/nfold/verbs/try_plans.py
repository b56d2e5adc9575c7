"""Several plans tried one after another with the same ranks: each gets a report, nothing is started twice.

For comparing many layouts: starting processes and profiling takes many times as long as the steps that are compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nfold.core.job import JobSettings, Trial
from nfold.core.plan import Plan
from nfold.core.report import Report
from nfold.core.trace import Trace
from nfold.errors import InternalError, PlanError
from nfold.planning.choosing.wishes import check_ranks
from nfold.program import Program, ProgramSource
from nfold.runtime.control import commands as cmd
from nfold.verbs.options.option_checks import Options
from nfold.verbs.results.phases import Phases
from nfold.verbs.results.summary import RunOutcome, summarise, typed
from nfold.verbs.running.job_recorder import JobRecorder
from nfold.verbs.running.observer import NullObserver
from nfold.verbs.running.run_job import Job
from nfold.verbs.train import Source, find_source

__all__ = ["Trial", "TriedPlan", "try_plans"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedPlan:
    """The result of one trial: its plan and its report, or why it has none."""

    trial: Trial
    refused: str | None = None
    """Why it could not be run."""
    plan: Plan | None = None
    report: Report | None = None
    trace: Trace | None = None


def try_plans(
    program: Source,
    trials: Sequence[Trial],
    *,
    on_tried: Callable[[TriedPlan], None] | None = None,
    **wishes: Any,
) -> list[TriedPlan]:
    """Train a few steps under each of several plans. Nothing is written, no model is kept.

    Args:
        program: as `train` takes it.
        trials: in this order; those with equal links beside each other need fewer probes.
        on_tried: is told of each trial as soon as it is done.
        wishes: fields of Options; ranks, strategies and steps are the trials' own.

    Raises:
        NfoldError: as `train` does; a trial whose plan is refused is no error.
    """
    if not trials:
        raise PlanError("no trials were given: pass at least one Trial")
    for trial in trials:
        check_ranks(trial.strategy, trial.workers, trial.servers)
    options = Options(**wishes)
    for wish in ("stop_after", "keep"):
        if (asked := getattr(options, wish)) is not None:
            raise PlanError(f"{wish}={asked!r}: trials are of a few steps, and keep no model. Leave it out.")
    largest = max(trials, key=lambda trial: (trial.world_size, trial.workers))
    options = replace(options, workers=largest.workers, servers=largest.servers)
    job = TrialsJob(find_source(program), options, tuple(trials), on_tried or (lambda _: None))
    for _ in job.play():
        pass
    return job.tried


class TrialsJob(Job):
    """A job whose steps belong to one trial after another."""

    def __init__(
        self,
        source: ProgramSource | Program,
        options: Options,
        trials: tuple[Trial, ...],
        on_tried: Callable[[TriedPlan], None],
    ) -> None:
        super().__init__(source, options, NullObserver(), folder=None)
        self._settings = replace(self._settings, trials=trials)
        self._recorder = self._trials = TrialsRecorder(source, options, self._settings, on_tried)

    @property
    def tried(self) -> list[TriedPlan]:
        """The results of the trials, in their order."""
        return self._trials.tried

    def _complete(self, phases: Phases) -> None:
        """Nothing to sum up: every trial has been."""


class TrialsRecorder(JobRecorder):
    """Sums up one trial after another."""

    def __init__(
        self,
        source: ProgramSource | Program,
        options: Options,
        settings: JobSettings,
        on_tried: Callable[[TriedPlan], None],
    ) -> None:
        super().__init__(source, options, settings, NullObserver(), folder=None)
        self._trials, self._on_tried = settings.trials, on_tried
        self._script = typed(source, options, None)
        self.tried: list[TriedPlan] = []

    def _take(self, happening: Any) -> None:
        if isinstance(happening, cmd.TrialPlanned):
            self.outcome = RunOutcome(known=happening.known, plan=happening.known.plan)
        elif isinstance(happening, cmd.TrialRefused):
            self._keep(TriedPlan(trial=self._trials[happening.index], refused=happening.why))
        elif isinstance(happening, cmd.TrialDone):
            self._sum_up(happening)
        else:
            super()._take(happening)

    def _sum_up(self, done: cmd.TrialDone) -> None:
        outcome = self.outcome
        if outcome.plan is None:
            raise InternalError("a trial ended that was never planned")
        trace, report = summarise(outcome, done.usage, {}, self._script, None)
        self._keep(TriedPlan(trial=self._trials[done.index], plan=outcome.plan, report=report, trace=trace))

    def _keep(self, tried: TriedPlan) -> None:
        self.tried.append(tried)
        self._on_tried(tried)
