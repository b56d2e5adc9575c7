"""One run from a program to a folder: starts the session, forwards what happens in it, and sums it up."""

import contextlib
import queue
import secrets
import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any, Literal

from nfold.errors import CUT, NfoldError, Terminated
from nfold.launch.stopping import hearing
from nfold.launch.template import Template
from nfold.program import Program, ProgramSource
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.session import Session
from nfold.runtime.failures.silent_ranks import PATIENCE, Patience
from nfold.verbs.jobs.database import user_database
from nfold.verbs.jobs.live_run import Live, LiveRun, NotShown
from nfold.verbs.options.job_record import Resumed
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.emulated_ranks import EmulatedRanks, emulated_ranks
from nfold.verbs.ranks.remote_hosts import CommandSide, RemoteHosts, remote_hosts
from nfold.verbs.ranks.starting import check_room, forking, own_threads, tell_traffic, token_for
from nfold.verbs.results.pages import write_documents
from nfold.verbs.results.phases import ENDING, SUMMING_UP, Phases
from nfold.verbs.results.summary import RunOutcome, summarise, typed
from nfold.verbs.run_folder.files import CHECKPOINT, MODEL, PLACE
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.held_hosts import HeldHosts, forget_held
from nfold.verbs.running.held_run import hold
from nfold.verbs.running.job_recorder import JobRecorder
from nfold.verbs.running.job_session import session_of
from nfold.verbs.running.observer import Observer, StepInfo
from nfold.verbs.watching.watchers import Watching, watchers_of, watching

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
        is_listed: bool = False,
        measures_for: tuple[int, ...] = (),
        resumed: Resumed | None = None,
        alone_samples_per_s: float | None = None,
        patience: Patience = PATIENCE,
        begun_s: float | None = None,
        held: HeldHosts | None = None,
        back: tuple[str, ...] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._source, self._options, self._held, self._back = source, options, held, back
        self.folder, self._resumed, self._alone, self._patience = folder, resumed, alone_samples_per_s, patience
        settings = options.settings(lockstep=lockstep, plan_only=plan_only or bool(measures_for))
        self._settings = replace(
            settings,
            begun=resumed.begun if resumed else None,
            measures_for=measures_for,
            run=secrets.token_hex(8),
            keeps_samples=not settings.plan_only and (folder is not None or not options.emulated),
            samples_folder=str(folder.path.absolute()) if folder is not None and options.emulated else None,
        )
        self._clock, self._begun_s = clock, begun_s
        self._live: Live = NotShown()
        self._watchers: list[Watching] = []
        if is_listed and folder is not None:
            goes_on = resumed is not None
            self._watchers = watchers_of(options, folder, goes_on=goes_on)
            self._live = LiveRun(source, folder, goes_on=goes_on, database=user_database(), watchers=self._watchers)
        self._recorder = JobRecorder(
            source, options, self._settings, observer, folder=folder, resumed=resumed, live=self._live, clock=clock
        )
        self._log_matters = self._model_is_kept = self._is_refused = False
        self._terminations: list[None] = []
        """SIGTERMs outside of the session."""
        self._emulated: EmulatedRanks | None = None
        self._hosts: RemoteHosts | None = None
        self.session: Session | None = None
        """While it plays: takes in members, and lets them go."""

    @property
    def outcome(self) -> RunOutcome:
        """The result of the run so far."""
        return self._recorder.outcome

    @property
    def is_stopped(self) -> bool:
        """Whether the run's time limit ended it before its last step."""
        return self._recorder.is_stopped

    @property
    def unkept(self) -> str:
        """Why the run cannot be resumed, where that showed while it trained; else empty."""
        return self._recorder.unkept

    def what_is_kept(self) -> str:
        """Say after Ctrl-C, or when the time is over, how far the run came and how to go on."""
        return self._recorder.kept.told(plan_only=self._settings.plan_only)

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
            with (
                watching(self._watchers, self._recorder.note),
                self._live.shown(self._recorder.note),
                self._stopping_where_too_few_are_left(),
            ):
                yield from self._play()
        except KeyboardInterrupt as stop:
            by_manager = isinstance(stop, Terminated) or (self.session is None and bool(self._terminations))
            is_kept = self._recorder.kept.goes_on
            raise (Terminated if by_manager and is_kept else KeyboardInterrupt)(self.what_is_kept()) from stop
        except NfoldError as error:
            if error.__cause__ is not None:  # it happened in this process
                self._recorder.log("".join(traceback.format_exception(error)))
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
                ending.enter_context(hearing(lambda: stops.put(None), lambda: self._hear_manager(stops)))
            ending.enter_context(own_threads(self._source, self._options))
            path = self.folder.path if self.folder is not None else None
            self._emulated = ending.enter_context(emulated_ranks(self._options, self._recorder.note, events, path))
            self._hosts = ending.enter_context(self._bring_hosts(events, lambda: not stops.empty()))
            if traffic := tell_traffic(self._source, self._options):
                self._recorder.note(traffic)
            template = ending.enter_context(forking(self._source, self._options))
            session = self.session = ending.enter_context(self._session(events, template))
            if not stops.empty() or self._terminations:
                session.interrupt(by_manager=bool(self._terminations))
            ending.callback(self._recorder.end)
            happenings = session.run()
            try:
                for happening in happenings:
                    info = self._hear(happening)
                    phases.happened(happening)
                    if isinstance(happening, cmd.Planned) and self._settings.lockstep:
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
            raise Terminated if self._recorder.is_terminated else KeyboardInterrupt

    def _hear_manager(self, stops: "queue.SimpleQueue[None]") -> None:
        self._terminations.append(None)
        stops.put(None)

    def _hand_out(
        self, info: StepInfo, session: Session, happenings: Iterator[Any], phases: Phases
    ) -> Generator[StepInfo, Asked, None]:
        """Hand a step to the caller's loop, until it wants the next one."""
        asked = yield info
        phases.returned()
        while asked == "checkpoint":
            if self._recorder.kept_step != info.step and not self.unkept:
                session.ask_for_checkpoint()
                for happening in happenings:
                    self._hear(happening)
                    phases.happened(happening)
                    if self._recorder.kept_step == info.step or self.unkept:
                        break
            asked = yield info
            phases.returned()
        session.ask_for_step()

    def _session(self, events: "queue.SimpleQueue[ev.Event]", template: Template | None) -> Session:
        return session_of(
            self._source,
            self._options,
            self._settings,
            self.folder,
            self._resumed,
            emulated=self._emulated,
            hosts=self._hosts,
            template=template,
            patience=self._patience,
            stop_in_s=self._left_s(),
            tell=self._recorder.log,
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
        command = CommandSide(
            token=self._held.token if self._held else token_for(self._source, self._options),
            events=events,
            log=folder.log if folder else None,
            spools=folder.spools() if folder else None,
            say=self._recorder.note,
            tell=self._recorder.log,
            is_called_off=is_called_off,
            back=self._back,
        )
        with remote_hosts(self._source, self._options, command) as hosts:
            self._settings = replace(self._settings, cluster=hosts.cluster, nodes=hosts.nodes, grant=hosts.grant)
            if self._resumed is not None:
                self._resumed = self._resumed.on_hosts(hosts.cluster)
            yield hosts

    def _left_s(self) -> float | None:
        """Seconds until the run must stop, of those that it was given from its very beginning."""
        if self._settings.plan_only or self._settings.stop_after_s is None or self._begun_s is None:
            return None
        return self._begun_s + self._settings.stop_after_s - self._clock()

    def _hear(self, happening: Any) -> StepInfo | None:
        if self._emulated is not None:
            self._emulated.take(happening)
        if isinstance(happening, cmd.TrainingBegins) and self._hosts is not None and self.folder is not None:
            hold(self._options, self._hosts, self.folder, self._recorder.note)
        return self._recorder.take(happening)

    # Ending early

    @contextlib.contextmanager
    def _stopping_where_too_few_are_left(self) -> Iterator[None]:
        """Let a run that has lost too many hosts stop, where it can go on, as one that waited for others in vain."""
        try:
            yield
        except NfoldError as error:
            if not (error.leaves_too_few and self._goes_on and not self._has_all_steps):
                raise
            for text in (str(error), *getattr(error, "__notes__", ()), "too few hosts are left to go on with"):
                self._recorder.note(text)
            raise Terminated from error

    @property
    def _goes_on(self) -> bool:
        """Whether the run can be gone on with."""
        kept = self._recorder.kept
        is_there = self.folder is not None and (self.folder.path / (CHECKPOINT if kept.step else PLACE)).exists()
        return kept.goes_on and is_there  # somebody may have removed it

    @property
    def _has_all_steps(self) -> bool:
        """Whether a checkpoint has the last step."""
        return 0 < self.outcome.total_steps <= self._recorder.kept.step

    def _say_what_is_left(self, error: NfoldError) -> None:
        """Add to a failure where to look and how to go on. What the user got wrong is told whole: it needs no log."""
        if self.folder is None:
            return
        self._log_matters = not isinstance(error, ValueError) or CUT in str(error)
        self._is_refused = self._resumed is not None and not self.outcome.losses
        kept = self._recorder.kept
        if self._has_all_steps and not self._model_is_kept:
            self._model_is_kept = kept.take_model_of_checkpoint(error)
        is_over = self._model_is_kept and not self.outcome.interrupted
        if self._goes_on and not (self._is_refused or is_over):
            error.add_note(kept.told_going_on("once this is mended, " if error.recurs else ""))
        elif error.leaves_too_few and not (kept.step or is_over):
            error.add_note("Too few hosts are left to go on with, and there is no checkpoint: the run must begin anew.")
        self._log_matters &= self.folder.log.exists() and self.folder.log.stat().st_size > 0
        if self._log_matters:
            error.add_note(f"The log has the tracebacks and what the ranks printed: {self.folder.log}")

    def _leave(self, folder: RunFolder) -> None:
        """Leave the folder to others. What cannot be cleared is told; it must not hide what ended the job."""
        if not self._back or self._hosts is not None:  # else those that hold have not been told to end
            forget_held(folder.path)
        try:
            folder.clear_halves()
        except OSError as error:
            self._recorder.note(f"note: {error.filename} is half written and cannot be removed: {error.strerror}")
        finally:
            try:
                has_begun = self.outcome.losses or self._recorder.kept.goes_on
                has_begun = has_begun or (self._resumed is not None and not self._is_refused)
                if not (has_begun or self._log_matters):
                    folder.discard()
                    self._live.forget()
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
            summarise(outcome, self._recorder.usage, phases.book(ENDING), script, self._alone)
            outcome.keep_time(phases, SUMMING_UP)
        except BaseException:
            self._keep_model()  # what was trained does not depend on what is said of it
            raise
        if self.folder is not None:
            is_complete = outcome.last_step >= self.outcome.total_steps
            write_documents(self.folder, outcome, self._keep_model, phases, is_complete=is_complete)

    def _keep_model(self) -> None:
        if self.folder is None:
            return
        if self.outcome.model is not None:
            self.folder.put_in_place(MODEL, self.outcome.model, "the model")
            self._model_is_kept = True
        elif self._recorder.kept_step and (checkpoint := self.folder.checkpoint()) is not None:
            self.folder.ensure_model(checkpoint)  # who waited for hosts delivers none: an older one may be there
            self._model_is_kept = True
