"""One run from a program to a folder: starts the session, hears what happens, and sums it up."""

import contextlib
import queue
import secrets
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nfold.analysis.measured.breakdown import step_duration
from nfold.errors import CUT, NfoldError, Terminated
from nfold.launch.stopping import hearing
from nfold.program import Program, ProgramSource
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.session import Session
from nfold.runtime.failures.failure_detector import PATIENCE, Patience
from nfold.verbs.options.job_record import Resumed, record_of
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.emulated_ranks import EmulatedRanks, emulated_ranks
from nfold.verbs.ranks.remote_hosts import RemoteHosts, remote_hosts
from nfold.verbs.ranks.starting import check_room, own_threads
from nfold.verbs.results.pages import write_documents
from nfold.verbs.results.phases import ENDING, SUMMING_UP, Phases
from nfold.verbs.results.summary import RunOutcome, summarise, typed
from nfold.verbs.run_folder.disk import check_disk, files_of
from nfold.verbs.run_folder.files import AVERAGE, BEST, CHECKPOINT, MODEL
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.history_writer import HistoryWriter
from nfold.verbs.running.job_session import session_of
from nfold.verbs.running.kept_run import KeptRun
from nfold.verbs.running.observer import Observer, StepInfo

if TYPE_CHECKING:
    from nfold.core.trace import RankUsage


Asked = Literal["checkpoint"] | None
"""What a loop may ask of the step that it was handed; None: the next one."""


class Job:
    """Runs a program; iterating plays it and, in lockstep, yields every step when all that is due after it is done.

    Who sends "checkpoint" instead of asking for the next step has one kept of this one, and gets the step again.
    """

    def __init__(
        self,
        source: ProgramSource | Program,
        options: Options,
        observer: Observer,
        *,
        folder: RunFolder | None,
        lockstep: bool = False,
        plan_only: bool = False,
        resumed: Resumed | None = None,
        alone_samples_per_s: float | None = None,
        patience: Patience = PATIENCE,
        begun_s: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._source, self._options, self._observer = source, options, observer
        self.folder, self._resumed, self._alone, self._patience = folder, resumed, alone_samples_per_s, patience
        settings = options.settings(lockstep=lockstep, plan_only=plan_only)
        self._settings = replace(settings, begun=resumed.begun) if resumed else settings
        self._clock, self._begun_s = clock, begun_s
        self.outcome = RunOutcome(history=list(resumed.history) if resumed else [])
        self._usage: tuple[RankUsage, ...] = ()
        self._history_writer = HistoryWriter(self.outcome.history, folder, clock)
        self._step: StepInfo | None = None
        """The last one, with what is known of it."""
        self._log_matters = False
        self._planned: ev.Planned | None = None
        self._is_saved = self._model_is_kept = self._is_refused = False
        self._is_terminated = False
        self._terminations: list[None] = []
        """SIGTERMs outside of the session."""
        self.is_stopped = False
        """Whether its time was over before its last step."""
        self.unkept = ""
        """Why the run cannot be resumed, where that showed while it trained."""
        self._emulated: EmulatedRanks | None = None
        self._hosts: RemoteHosts | None = None
        self.session: Session | None = None
        """While it plays: takes in members, and lets them go."""
        self._telling = threading.RLock()
        """The observer is told things by the thread of the faults too."""
        self._kept_step = resumed.checkpoint.step if resumed and resumed.checkpoint else 0

    def play(self) -> Generator[StepInfo, Asked, None]:
        """Play the job to its end, or until the caller stops asking.

        Raises:
            NfoldError: it failed; every rank is gone.
            KeyboardInterrupt: Ctrl-C; after the plan was made, a checkpoint is kept.
        """
        # Until the folder is left: the session hears for itself, and whoever sums up has all that the end takes.
        with hearing(lambda: self._terminations.append(None), signals=(signal.SIGTERM,)):
            yield from self._play_out()

    def _play_out(self) -> Generator[StepInfo, Asked, None]:
        try:
            yield from self._play()
        except Terminated as stop:
            raise (Terminated if self._kept.goes_on else KeyboardInterrupt)(self.what_is_kept()) from stop
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(self.what_is_kept()) from stop
        except NfoldError as error:
            if error.__cause__ is not None:  # it happened in this process
                self._log("".join(traceback.format_exception(error)))
            self._say_what_is_left(error)
            raise
        finally:
            if self.folder is not None:
                self._leave(self.folder)

    def _play(self) -> Generator[StepInfo, Asked, None]:
        if self._begun_s is None:
            self._begun_s = self._clock()
        phases, stops = Phases(self._clock, self._begun_s), queue.SimpleQueue[None]()
        events, is_left = queue.SimpleQueue[ev.Event](), False
        check_room(self._source, self._options)
        with contextlib.ExitStack() as ending:
            if self._options.emulated or self._options.target:
                # Outside of the session, which hears for itself: what is half built, or half removed, is not left so.
                ending.enter_context(hearing(lambda: stops.put(None)))
            ending.enter_context(own_threads(self._source, self._options))
            self._emulated = ending.enter_context(emulated_ranks(self._options, self._note, events))
            self._hosts = ending.enter_context(self._bring_hosts(events, lambda: not stops.empty()))
            session = self.session = ending.enter_context(self._session(events))
            if not stops.empty() or self._terminations:
                session.interrupt(by_manager=bool(self._terminations))
            ending.callback(self._history_writer.write)
            happenings = session.run()
            try:
                for happening in happenings:
                    info = self._hear(happening)
                    phases.happened(happening)
                    if isinstance(happening, ev.Planned) and self._settings.lockstep:
                        session.ask_for_step()
                    if info is not None:
                        yield from self._hand_out(info, session, happenings, phases)
            except GeneratorExit:
                is_left = True
                if self._settings.lockstep:
                    phases.returned()
                session.interrupt()
                for happening in happenings:
                    self._hear(happening)
                    phases.happened(happening)
        self._complete(phases)  # all is removed by now, so that the time of it is in the ledger
        was_told = self.outcome.interrupted or not stops.empty()  # the session, or who built and removed around it
        if was_told and not (is_left or (self.is_stopped and stops.empty())):
            raise Terminated if self._is_terminated else KeyboardInterrupt

    def _hand_out(
        self, info: StepInfo, session: Session, happenings: Iterator[Any], phases: Phases
    ) -> Generator[StepInfo, Asked, None]:
        """Hand a step to the caller's loop, until it wants the next one."""
        asked = yield info
        phases.returned()
        while asked == "checkpoint":
            if self._kept_step != info.step and not self.unkept:
                session.ask_for_checkpoint()
                for happening in happenings:
                    self._hear(happening)
                    phases.happened(happening)
                    if self._kept_step == info.step or self.unkept:
                        break
            asked = yield info
            phases.returned()
        session.ask_for_step()

    def _session(self, events: "queue.SimpleQueue[ev.Event]") -> Session:
        return session_of(
            self._source,
            self._options,
            self._settings,
            self.folder,
            self._resumed,
            emulated=self._emulated,
            hosts=self._hosts,
            patience=self._patience,
            stop_in_s=self._left_s(),
            tell=self._log,
            events=events,
        )

    @contextlib.contextmanager
    def _bring_hosts(
        self, events: "queue.SimpleQueue[ev.Event]", is_called_off: Callable[[], bool]
    ) -> Iterator[RemoteHosts | None]:
        """Bring the hosts that the run asks for, and settle what hangs on which they are."""
        if self._options.target is None:
            yield None
            return
        folder = self.folder
        with remote_hosts(
            self._source,
            self._options,
            token=secrets.token_hex(16),
            events=events,
            log=folder.log if folder else None,
            spools=folder.spools() if folder else None,
            say=self._note,
            tell=self._log,
            is_called_off=is_called_off,
        ) as hosts:
            self._settings = replace(self._settings, cluster=hosts.cluster, nodes=hosts.nodes)
            if self._resumed is not None:
                self._resumed = self._resumed.on_hosts(hosts.cluster)
            yield hosts

    def _left_s(self) -> float | None:
        """Seconds until the run must stop, of those that it was given from its very beginning."""
        if self._settings.plan_only or self._settings.stop_after_s is None or self._begun_s is None:
            return None
        return self._begun_s + self._settings.stop_after_s - self._clock()

    # What happens

    def _hear(self, happening: Any) -> StepInfo | None:
        if self._emulated is not None:
            self._emulated.take(happening)
        with self._telling:
            return self._take(happening)

    def _take(self, happening: Any) -> StepInfo | None:
        if isinstance(happening, ev.Planned):
            self._take_plan(happening)
        elif isinstance(happening, ev.Replanned):
            self._take_other_plan(happening)
        elif isinstance(happening, ev.StepDone):
            self._take_step(happening)
        elif isinstance(happening, ev.Settled):
            self._history_writer.write()  # so that the loop reads what it is told
            return self._step
        elif isinstance(happening, ev.Sampled):
            self.outcome.samples.keep(happening.samples)
        elif isinstance(happening, ev.LinksChanged):
            self.outcome.changes.append((happening, self._history_writer.session_s))
        elif isinstance(happening, ev.Evaluated):
            self._take_evaluation(happening)
        elif isinstance(happening, ev.Noted):
            self._note(happening.text)
        elif isinstance(happening, ev.KeepCheckpoint):
            self._history_writer.write()
            if self.folder is not None:
                self._keep_checkpoint(self.folder, happening)
        elif isinstance(happening, ev.Unkept):
            self._drop_checkpoint(happening)
        elif isinstance(happening, ev.KeepBest):
            if self.folder is not None:
                self.folder.put_in_place(BEST, happening.file, f"the best model, of step {happening.step}")
        elif isinstance(happening, ev.KeepAverage):
            if self.folder is not None:
                self.folder.put_in_place(AVERAGE, happening.file, f"the averaged weights, of step {happening.step}")
        elif isinstance(happening, ev.Finished):
            self.outcome.model, self.outcome.interrupted = happening.model, happening.interrupted
            self.is_stopped, self._is_terminated = happening.is_time_up, happening.is_terminated
            self.outcome.staleness = happening.staleness
            self._usage = happening.usage
        return None

    def _keep_checkpoint(self, folder: RunFolder, kept: ev.KeepCheckpoint) -> None:
        is_first = not self._kept_step
        folder.put_in_place(CHECKPOINT, kept.file, f"the checkpoint of step {kept.step}")
        self._kept_step = kept.step
        if is_first:
            self._save_record()

    def _drop_checkpoint(self, dropped: ev.Unkept) -> None:
        """Go on without checkpoints, and say so in the folder too."""
        dropped.file.drop()
        if self.unkept:
            return
        self.unkept = dropped.reason
        self._note(
            f"note: no checkpoint is written from step {dropped.step} on, and this run cannot be resumed: {self.unkept}"
        )
        self._save_record()

    def _note(self, text: str) -> None:
        """Tell the user, and the log; any thread may call this."""
        with self._telling:
            self._observer.noted(text)
            self._log(text)

    def _take_plan(self, planned: ev.Planned) -> None:
        outcome = self.outcome
        outcome.known, outcome.plan, outcome.steps_per_epoch = planned.known, planned.plan, planned.steps_per_epoch
        outcome.last_step, outcome.total_steps = planned.first_step, planned.total_steps
        self._planned = planned
        self._check_disk(planned)
        if self._resumed is None:
            self._save_plan()
        outcome.foretold = planned.foretold
        self._observer.planned(planned, self.folder.path if self.folder else None)

    def _take_other_plan(self, other: ev.Replanned) -> None:
        """Let what is said of the run be of the steps from now on: those before had another plan."""
        assert self._planned is not None, "another plan follows a first one"
        self._planned = replace(self._planned, known=other.known, plan=other.plan, first_step=other.next_step)
        self.outcome.begin_anew(other.known, other.plan)
        self._is_saved = False
        self._save_plan()
        self._observer.planned(self._planned, None)

    def _check_disk(self, planned: ev.Planned) -> None:
        where = self.folder.path if self.folder is not None else self._options.out
        if where is not None:
            files = files_of(planned, self._settings)
            check_disk(Path(where), files, may_do_without=self._options.stop_after is None)

    def _save_plan(self) -> None:
        """Write what the run rests on; a resumed run keeps what it has until the first step shows that it can go on."""
        planned = self._planned
        if self.folder is not None and planned is not None and not self._is_saved:
            if self._resumed is not None:
                self.folder.cut_history(planned.first_step)
            self.folder.save_known(planned.known, planned.plan)
            self._save_record()
            if self._options.emulated is not None and not self._options.cluster_file:
                self.folder.save_emulated(self._options.emulated)
            self.folder.log.touch()
            self._is_saved = True

    def _save_record(self) -> None:
        """Write what it takes to go on, which needs a script."""
        assert self._planned is not None, "what is kept was planned"
        if self.folder is not None and isinstance(self._source, ProgramSource):
            kept = bool(self._kept_step)
            record = record_of(self._source, self._options, self._planned, has_checkpoint=kept, unkept=self.unkept)
            self.folder.save(record)

    def _take_step(self, done: ev.StepDone) -> None:
        self._save_plan()
        outcome = self.outcome
        step_s = step_duration(done.parts)
        outcome.last_step = done.step + 1
        outcome.parts.keep(done.parts)
        outcome.reductions.keep(done.reductions)
        if done.trace is not None:
            outcome.traces.append(done.trace)
        outcome.losses.append(done.loss)
        self._history_writer.stepped(done, step_s)
        self._observer.stepped(done)
        self._step = StepInfo(step=done.step + 1, epoch=done.epoch + 1, loss=done.loss, step_s=step_s)

    def _take_evaluation(self, evaluated: ev.Evaluated) -> None:
        self._save_plan()  # a resumed run may owe one before its first step
        # JSON has no NaN: the name stands without a number.
        metrics = {name: value if isfinite(value) else None for name, value in evaluated.metrics.items()}
        self.outcome.metrics = metrics
        self._history_writer.evaluated(evaluated, metrics)
        if self._step is not None and self._step.step == evaluated.step:
            self._step = replace(self._step, metrics=evaluated.metrics)
        self._observer.evaluated(evaluated)

    def _log(self, text: str) -> None:
        if self.folder is not None and text:
            self.folder.append_log(text)

    # Ending early

    @property
    def _kept(self) -> KeptRun:
        return KeptRun(self._source, self.folder, self.outcome, self._kept_step, self.unkept)

    def what_is_kept(self) -> str:
        """Say after Ctrl-C, or when the time is over, how far the run came and how to go on."""
        return self._kept.told(plan_only=self._settings.plan_only)

    def _say_what_is_left(self, error: NfoldError) -> None:
        """Add to a failure where to look and how to go on. What the user got wrong is told whole: it needs no log."""
        if self.folder is None:
            return
        self._log_matters = not isinstance(error, ValueError) or CUT in str(error)
        self._is_refused = self._resumed is not None and not self.outcome.losses
        if self.outcome.total_steps and self._kept_step >= self.outcome.total_steps and not self._model_is_kept:
            self._model_is_kept = self._kept.take_model_of_checkpoint(error)
        is_over = self._model_is_kept and not self.outcome.interrupted
        is_there = (self.folder.path / CHECKPOINT).exists()  # somebody may have removed the folder
        if self._kept.goes_on and is_there and not (self._is_refused or is_over):
            error.add_note(self._kept.told_checkpoint("once this is mended, " if error.recurs else ""))
        self._log_matters &= self.folder.log.exists() and self.folder.log.stat().st_size > 0
        if self._log_matters:
            error.add_note(f"The log has the tracebacks and what the ranks printed: {self.folder.log}")

    def _leave(self, folder: RunFolder) -> None:
        """Leave the folder to others. What cannot be cleared is told; it must not hide what ended the job."""
        try:
            folder.clear_halves()
        except OSError as error:
            self._note(f"note: {error.filename} is half written and cannot be removed: {error.strerror}")
        finally:
            try:
                has_trained = self.outcome.losses or (self._resumed is not None and not self._is_refused)
                if not (has_trained or self._log_matters):
                    folder.discard()
            finally:
                folder.release()

    # Summing up

    def _complete(self, phases: Phases) -> None:
        outcome = self.outcome
        if outcome.plan is None or outcome.known is None or self._settings.plan_only:
            return
        if not outcome.parts.steps:
            self._keep_model()
            return
        try:
            script = typed(self._source, self._options, self.folder)
            summarise(outcome, self._usage, phases.book(ENDING), script, self._alone)
            outcome.keep_time(phases, SUMMING_UP)
        except BaseException:
            self._keep_model()  # what was trained does not depend on what is said of it
            raise
        if self.folder is not None:
            is_complete = outcome.last_step >= self.outcome.total_steps
            write_documents(self.folder, outcome, self._keep_model, phases, is_complete=is_complete)

    def _keep_model(self) -> None:
        if self.folder is not None and self.outcome.model is not None:
            self.folder.put_in_place(MODEL, self.outcome.model, "the model")
            self._model_is_kept = True
