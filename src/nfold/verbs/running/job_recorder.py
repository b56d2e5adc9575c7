"""What happens in a run, taken in event by event: it is summed up, kept in the run's folder, and shown to the user."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfold.analysis.measured.breakdown import step_duration
from nfold.core.job import JobSettings
from nfold.core.member_event import MemberEvent
from nfold.core.residency import PlacedData
from nfold.program import Program, ProgramSource
from nfold.runtime.control import commands as cmd
from nfold.verbs.jobs.live_run import Live, NotShown
from nfold.verbs.options.job_record import Resumed, record_of
from nfold.verbs.options.option_checks import Options
from nfold.verbs.results.summary import RunOutcome
from nfold.verbs.run_folder.disk import check_disk, files_of
from nfold.verbs.run_folder.files import AVERAGE, BEST, CHECKPOINT
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.history_writer import HistoryWriter
from nfold.verbs.running.kept_run import KeptRun
from nfold.verbs.running.member_ledger import MemberLedger
from nfold.verbs.running.observer import Observer, StepInfo

if TYPE_CHECKING:
    from nfold.core.trace import RankUsage


class JobRecorder:
    """Turns the events of a run into its outcome, its files and what its observer is shown.

    It knows neither the session that the events come from nor the signals that end it.
    """

    def __init__(
        self,
        source: ProgramSource | Program,
        options: Options,
        settings: JobSettings,
        observer: Observer,
        *,
        folder: RunFolder | None,
        resumed: Resumed | None = None,
        live: Live | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        source: of the program.
        options: as the user gave them.
        settings: what the coordinator goes by.
        observer: is shown what happens.
        folder: where the run is kept; None: nowhere.
        resumed: where an earlier run stopped; None: it begins.
        live: shows the run to other terminals; None: nobody does.
        clock: gives seconds.
        """
        self._source, self._options, self._settings, self._observer = source, options, settings, observer
        self._folder, self._resumed, self._live = folder, resumed, live or NotShown()
        self.outcome = RunOutcome(history=list(resumed.history) if resumed else [])
        if resumed is not None and folder is not None:
            self.outcome.events += folder.events()
        self.usage: tuple[RankUsage, ...] = ()
        """Of every rank, once the run has ended."""
        self.kept_step = resumed.checkpoint.step if resumed and resumed.checkpoint else 0
        """Of the last checkpoint; 0: there is none."""
        self.unkept = ""
        """Why the run cannot be resumed, where that showed while it trained."""
        self.is_stopped = self.is_terminated = False
        """Whether its time was over before its last step; whether SIGTERM ended it, or too few hosts."""
        self._history_writer = HistoryWriter(self.outcome.history, folder, clock)
        self._member_ledger = MemberLedger(clock)
        self._step: StepInfo | None = None
        """The last one, with what is known of it."""
        self._planned: cmd.Planned | None = None
        self._unbegun: cmd.Replanned | None = None
        """The last other plan, of which no step was played: what is said of the run is of the one before."""
        self._is_saved = False
        self._telling = threading.RLock()
        """The observer is told things by the thread of the faults too."""

    @property
    def kept(self) -> KeptRun:
        """What is kept of the run so far."""
        return KeptRun(self._source, self._folder, self.outcome, self.kept_step, self.unkept)

    def take(self, happening: Any) -> StepInfo | None:
        """Take in an event. Return the last step if all that is due after it is done now; None after other events.

        Raises:
            PlanError: the run was planned, and the disk has no room for its files.
            CheckpointError: a file cannot be written.
        """
        with self._telling:
            self._live.take(happening)
            self._take(happening)
            return self._step if isinstance(happening, cmd.Settled) else None

    def note(self, text: str) -> None:
        """Tell the user, and the log; any thread may call this."""
        with self._telling:
            self._observer.noted(text)
            self.log(text)
            self._live.noted(text)

    def log(self, text: str) -> None:
        """Add lines to the log of the folder, where there is a folder."""
        if self._folder is not None and text:
            self._folder.append_log(text)

    def write_history(self) -> None:
        """Write the history lines that are still in memory to the folder."""
        self._history_writer.write()

    def end(self) -> None:
        """Write what is still in memory to the folder: the run is over, however it ended."""
        for event in (unfollowed := self._member_ledger.unfollowed()):
            if event.kind == "loss":
                self.note(f"{event.name}, and no step followed")
        self._keep_events([*self._member_ledger.settled(), *unfollowed])
        self.write_history()

    def _take(self, happening: Any) -> None:
        if isinstance(happening, cmd.Measured):
            self.outcome.measured = happening
        elif isinstance(happening, cmd.Planned):
            self._take_plan(happening)
        elif isinstance(happening, cmd.Placed):
            self._take_placement(happening.data)
        elif isinstance(happening, cmd.Moved):
            self.outcome.moved.append(happening)
        elif isinstance(happening, cmd.Replanned):
            self._take_other_plan(happening)
        elif isinstance(happening, cmd.Departed):
            self._keep_events(self._member_ledger.changed(happening))
            self._go_back(happening.next_step)
        elif isinstance(happening, cmd.StateRead):
            self._member_ledger.moved(happening.num_bytes)
        elif isinstance(happening, cmd.StepDone):
            self._take_step(happening)
        elif isinstance(happening, cmd.Evaluated):
            self._take_evaluation(happening)
        elif isinstance(happening, cmd.Settled):
            self.write_history()  # so that the loop reads what it is told
        elif isinstance(happening, cmd.Sampled):
            self._follow()
            self.outcome.samples.keep(happening.samples)
        elif isinstance(happening, cmd.LinksChanged):
            self.outcome.changes.append((happening, self._history_writer.session_s))
        elif isinstance(happening, cmd.Noted):
            self.note(happening.text)
        elif isinstance(happening, cmd.Finished):
            self._take_end(happening)
        elif isinstance(happening, cmd.Unkept):
            self._drop_checkpoint(happening)
        elif self._folder is not None:
            self._take_file(happening, self._folder)

    # The plan

    def _take_plan(self, planned: cmd.Planned) -> None:
        outcome = self.outcome
        outcome.known, outcome.plan, outcome.last_step = planned.known, planned.plan, planned.first_step
        self._lasts(planned)
        self._member_ledger.begun(planned.plan.batch_size)
        self._check_disk(planned)
        if self._resumed is None:
            self._save_plan()
        outcome.moves_samples = outcome.placed is not None and bool(outcome.placed.runs[-1].moves)
        outcome.foretold = planned.foretold
        self._observer.planned(planned, self._folder.path if self._folder else None)

    def _take_placement(self, placed: PlacedData) -> None:
        """Keep where data live as soon as a run that goes on needs it: who gave samples away is let go right then."""
        self.outcome.placed = placed
        run = placed.runs[-1]
        if self._folder is not None and self._is_saved and run.has_moved and run.first_step == self.kept_step:
            self._folder.save(placed)

    def _take_other_plan(self, other: cmd.Replanned) -> None:
        """Let what is said of the run be of the steps from now on: those before had another plan."""
        self._keep_events(self._member_ledger.changed(other))
        self._go_back(other.next_step)
        self.write_history()  # whoever finds this plan takes all untold steps for those of its ranks
        assert self._planned is not None, "another plan follows a first one"
        planned = replace(self._planned, known=other.known, plan=other.plan, first_step=other.next_step)
        if (steps := other.run_steps) is not None:
            planned = replace(planned, total_steps=steps.total_steps, epochs=steps.by_epoch)
        self._lasts(planned)
        self._unbegun = other
        if other.num_lacking and (gone := (*other.turnover.lost, *other.turnover.left)):
            self.note(f"{', '.join(gone)} gone: too few are left to train")
        self._is_saved = False
        self._save_plan()
        if not other.num_lacking:
            self._observer.planned(planned, None)

    def _lasts(self, planned: cmd.Planned) -> None:
        """Note what the run rests on, and how long it lasts by that."""
        self._planned = planned
        self.outcome.total_steps, self.outcome.steps_per_epoch = planned.total_steps, planned.epochs.latest

    def _follow(self) -> None:
        """Note that ranks play the other plan."""
        other, self._unbegun = self._unbegun, None
        if other is None:
            return
        self.outcome.begin_anew(other.known, other.plan)
        if other.num_lacking and self._planned is not None:  # nobody was to train by it then
            self._observer.planned(self._planned, None)

    def _go_back(self, step: int) -> None:
        """Forget the steps after one, if there are any: they are played again."""
        if (again := self.outcome.last_step - step) <= 0:
            return
        self._history_writer.cut(step)
        if self._folder is not None:
            self._folder.cut_history(step)
        del self.outcome.losses[-again:]
        self.outcome.last_step = step

    def _check_disk(self, planned: cmd.Planned) -> None:
        where = self._folder.path if self._folder is not None else self._options.out
        if where is not None:
            files = files_of(planned, self._settings)
            check_disk(Path(where), files, may_do_without=self._options.stop_after is None)

    def _save_plan(self) -> None:
        """Write what the run rests on; a resumed run keeps what it has until the first step shows that it can go on."""
        planned = self._planned
        if self._folder is not None and planned is not None and not self._is_saved:
            if self._resumed is not None:
                self._folder.cut_history(planned.first_step)
            self._folder.save_known(planned.known, planned.plan)
            if self.outcome.placed is not None:
                self._folder.save(self.outcome.placed)
            self._save_record()
            if self._options.emulated is not None and not self._options.cluster_file:
                self._folder.save_emulated(self._options.emulated)
            self._folder.log.touch()
            self._is_saved = True

    def _save_record(self) -> None:
        """Write what it takes to go on, which needs a script."""
        assert self._planned is not None, "what is kept was planned"
        if self._folder is not None and isinstance(self._source, ProgramSource):
            kept = bool(self.kept_step)
            record = record_of(self._source, self._options, self._planned, has_checkpoint=kept, unkept=self.unkept)
            self._folder.save(record)

    # Steps

    def _take_step(self, done: cmd.StepDone) -> None:
        self._save_plan()
        outcome = self.outcome
        self._follow()
        step_s = step_duration(done.parts)
        outcome.last_step = done.step + 1
        outcome.parts.keep(done.parts)
        outcome.reductions.keep(done.reductions)
        if done.trace is not None:
            outcome.traces.append(done.trace)
        outcome.losses.append(done.loss)
        self._history_writer.stepped(done, step_s)
        self._observer.stepped(done)
        if not done.is_late:
            begun, complete = self._member_ledger.stepped(step_s)
            for event in begun:
                self.note(event.told)
            self._keep_events(complete)
        self._step = StepInfo(step=done.step + 1, epoch=done.epoch + 1, loss=done.loss, step_s=step_s)

    def _keep_events(self, events: list[MemberEvent]) -> None:
        self.outcome.events += events
        for event in events:
            self._live.take(event)
            if self._folder is not None:
                self._folder.append_event(event)

    def _take_evaluation(self, evaluated: cmd.Evaluated) -> None:
        self._save_plan()  # a resumed run may owe one before its first step
        # JSON has no NaN: the name stands without a number.
        metrics = {name: value if isfinite(value) else None for name, value in evaluated.metrics.items()}
        self.outcome.metrics = metrics
        self._history_writer.evaluated(evaluated, metrics)
        if self._step is not None and self._step.step == evaluated.step:
            self._step = replace(self._step, metrics=evaluated.metrics)
        self._observer.evaluated(evaluated)

    def _take_end(self, end: cmd.Finished) -> None:
        self.outcome.model, self.outcome.interrupted = end.model, end.interrupted
        self.outcome.staleness = end.staleness
        self.is_stopped, self.is_terminated = end.is_time_up, end.is_terminated
        self.usage = end.usage

    # Files that ranks sent

    def _take_file(self, happening: Any, folder: RunFolder) -> None:
        if isinstance(happening, cmd.KeepCheckpoint):
            self._keep_checkpoint(happening, folder)
        elif isinstance(happening, cmd.KeepBest):
            folder.put_in_place(BEST, happening.file, f"the best model, of step {happening.step}")
        elif isinstance(happening, cmd.KeepAverage):
            folder.put_in_place(AVERAGE, happening.file, f"the averaged weights, of step {happening.step}")

    def _keep_checkpoint(self, kept: cmd.KeepCheckpoint, folder: RunFolder) -> None:
        self.write_history()
        is_first = not self.kept_step
        folder.put_in_place(CHECKPOINT, kept.file, f"the checkpoint of step {kept.step}")
        self.kept_step = kept.step
        if is_first:
            self._save_record()

    def _drop_checkpoint(self, dropped: cmd.Unkept) -> None:
        """Go on without checkpoints, and say so in the folder too."""
        dropped.file.drop()
        if self.unkept:
            return
        self.unkept = dropped.reason
        self.note(
            f"note: no checkpoint is written from step {dropped.step} on, and this run cannot be resumed: {self.unkept}"
        )
        self._save_record()
