"""The shell of a job: starts ranks, carries events to the coordinator and its orders back, and ends everything.

Whatever happens (an exception, Ctrl-C, a rank that hangs), leaving the session ends every rank that it started.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Self

from nfold.errors import ClusterError, RunError, WorkerLost
from nfold.launch.launcher import Launcher
from nfold.launch.stopping import hearing
from nfold.runtime.checkpoint.state_file import StoredState
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.control.channel import ChannelClosed
from nfold.runtime.control.control_server import ControlServer
from nfold.runtime.control.order_log import NUMBER
from nfold.runtime.coordinator.coordinator import Coordinator
from nfold.runtime.coordinator.members.planned_aside import plan_aside
from nfold.runtime.coordinator.time_limit import TimeLimit

BOOT_TIMEOUT_S = 180.0
GRACE_S = 1.0
"""How long ranks that are done, or were told to stop, have before they are killed."""
POLL_S = 0.2
"""While ranks start: how often to look whether one has died before it could say so."""
TICK_S = 1.0
"""How often the coordinator hears of time."""

Step = (
    cmd.RanksStarted
    | cmd.Prepared
    | cmd.Measured
    | cmd.Planned
    | cmd.Placed
    | cmd.Moved
    | cmd.Replanned
    | cmd.Departed
    | cmd.StateRead
    | cmd.TrainingBegins
    | cmd.StepDone
    | cmd.Sampled
    | cmd.LinksChanged
    | cmd.Evaluated
    | cmd.KeepCheckpoint
    | cmd.Unkept
    | cmd.KeepBest
    | cmd.KeepAverage
    | cmd.Settled
    | cmd.SetLinks
    | cmd.TrialPlanned
    | cmd.TrialRefused
    | cmd.TrialDone
    | cmd.Noted
    | cmd.Finished
)
_Unheard = cmd.Send | cmd.SendState | cmd.LetGo | cmd.TakeState | cmd.PlanAside | cmd.SetTimer
"""What the shell does, and tells nobody."""


class Session:
    """One job from start to end; a context manager."""

    def __init__(
        self,
        coordinator: Coordinator,
        launcher: Launcher,
        control_server: ControlServer,
        events: "queue.SimpleQueue[ev.Event]",
        *,
        world_size: int,
        token: str,
        log: Callable[[str], None],
        checkpoint: StoredState | None = None,
        kept_last: Callable[[], StoredState | None] = lambda: None,
        stop_in_s: float | None = None,
        stop_after_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinator, self._launcher, self._control_server, self._events = (
            coordinator,
            launcher,
            control_server,
            events,
        )
        self._world_size, self._token, self._log, self._clock = world_size, token, log, clock
        self._checkpoint, self._kept_last = checkpoint, kept_last
        self._timers: list[threading.Timer] = []
        self._hearing = contextlib.ExitStack()
        self._interrupts = 0
        self._limit = TimeLimit() if stop_in_s is None else TimeLimit(clock() + stop_in_s)
        self._stop_after_s = stop_after_s
        self._is_leaving = self._finished = self._cannot_halt = False
        self._tick_s = 0.0
        self._num_sent = 0
        self._founders, self._coming = set(range(world_size)), set[int]()
        self._unwritten: list[cmd.Replanned] = []
        """Plans that follow, until ranks play them."""

    def __enter__(self) -> Self:
        """Take over Ctrl-C and start the ranks."""
        self._hearing.enter_context(hearing(self._interrupt, self._terminate))
        try:
            for _ in range(self._world_size):
                if self._interrupts:
                    raise KeyboardInterrupt
                self._start_member()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End every rank and give Ctrl-C back."""
        self._is_leaving = True
        for timer in self._timers:
            timer.cancel()
        self._control_server.close()
        self._launcher.stop(GRACE_S if self._finished else 0.0)
        self._hearing.close()

    def run(self) -> Iterator[Step]:
        """Yield what happens until the job is over.

        Raises:
            NfoldError: the job failed; the message names the first cause.
            KeyboardInterrupt: Ctrl-C came before training began, or twice.
        """
        places = self._wait_for_hellos()
        yield cmd.RanksStarted()
        commands = self._coordinator.start(places)
        begun = False
        while True:
            for command in self._orders_first(commands):
                if isinstance(command, cmd.Failed):
                    if command.is_death:
                        self._add_last_lines(command.error)
                    self._log(command.details)
                    raise command.error
                if isinstance(command, cmd.Send):
                    if command.message["do"] == "until" and not begun:
                        begun = True
                        yield cmd.TrainingBegins()
                    if command.message["do"] == "until" and self._cannot_halt:
                        self._limit.allowed(command.message["step"])
                    self._send(command)
                elif isinstance(command, cmd.SendState):
                    self._send_state(command)
                elif isinstance(command, cmd.LetGo):
                    self._control_server.forget(command.member)
                    self._launcher.release(command.member, is_lost=command.is_lost, why=command.why)
                elif isinstance(command, cmd.TakeState):
                    self._take_state()
                elif isinstance(command, cmd.PlanAside):
                    self._plan_aside(command)
                elif isinstance(command, cmd.SetTimer):
                    self._set_timer(command.seconds)
                else:
                    self._finished = isinstance(command, cmd.Finished)
                    yield command
                    self._note_time(command)
                    if self._finished:
                        return
            event = self._next_event()
            if isinstance(event, ev.HostReady):
                event = self._welcome(event)
            elif isinstance(event, ev.Left):
                event = replace(event, comes_again=self._launcher.comes_again(event.member))
            self._note_arrival(event)
            commands = self._coordinator.handle(event)

    def request(self, count: int = 1) -> tuple[int, ...]:
        """Start members that take part as soon as they can; return their numbers. For the thread that plays the job.

        They load the program and are held against the others while these train; see `Admission`.

        Raises:
            ClusterError: there is no place for one more.
        """
        return tuple(self._start_member() for _ in range(count))

    def release(self, member: int) -> None:
        """Let a member leave as soon as the others can go on without it."""
        self._events.put(ev.ReleaseWanted(member))

    def ask_for_step(self) -> None:
        """In lockstep: let the ranks play one more step."""
        self._events.put(ev.Continue())

    def ask_for_checkpoint(self) -> None:
        """In lockstep: keep a checkpoint of the step that was handed out."""
        self._events.put(ev.CheckpointWanted())

    def interrupt(self, *, by_manager: bool = False) -> None:
        """End the run in order, after the steps that are under way."""
        self._events.put(ev.Interrupted(by_manager=by_manager))

    def _orders_first(self, commands: list[cmd.ToShell]) -> list[cmd.ToShell]:
        """Where another plan follows, let nobody wait until that is written down: it is once ranks begin to play it, or
        before anything else is to be told but notes. Where data live is written before those go who gave them away.
        """
        told = [*self._unwritten, *commands]
        plans = [each for each in told if isinstance(each, cmd.Replanned)]
        have_gone = any(isinstance(each, cmd.Departed) for each in told)
        is_due = any(plan.num_lacking for plan in plans) or not all(
            isinstance(each, cmd.Replanned | cmd.Noted | _Unheard) and not _is_order(each, "until") for each in told
        )
        self._unwritten = [] if is_due else plans
        if not plans and not have_gone:
            return commands
        told = [each for each in told if is_due or not isinstance(each, cmd.Replanned)]
        return sorted(told, key=lambda each: not (isinstance(each, cmd.Placed) or _is_order(each)))

    def _welcome(self, host: ev.HostReady) -> ev.Event:
        """Start a member on a host that has come; where that has gone meanwhile, the run goes on as it is."""
        try:
            return ev.MemberStarted(self._start_member(), host.node, host.why, host.launched_at)
        except ClusterError as error:
            self._log(str(error))
            return ev.HostGone(host.node.name)

    def _start_member(self) -> int:
        number = self._control_server.expect()
        try:
            self._launcher.start(number, self._control_server.host, self._control_server.port, self._token)
        except ClusterError:
            self._control_server.forget(number)
            raise
        self._coming.add(number)
        return number

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._is_leaving:
            return  # everything ends already, and must not be left half-ended
        if self._interrupts > 1:
            raise KeyboardInterrupt
        self._events.put(ev.Interrupted(by_key=True))

    def _terminate(self) -> None:
        """A job manager ends the job: however often it says so, to all of a group, it means one thing."""
        if self._is_leaving or self._interrupts:
            return
        self._interrupts = 1
        self._events.put(ev.Interrupted(by_manager=True))

    def _note_time(self, command: cmd.Command) -> None:
        if isinstance(command, cmd.Planned):
            self._cannot_halt = command.plan.asynchrony is not None  # others end with the step under way
        if isinstance(command, cmd.StepDone):
            self._limit.played(command.step + 1, max(part.step_s for part in command.parts))
        if isinstance(command, cmd.KeepCheckpoint):
            self._limit.kept(self._clock())
        elif isinstance(command, cmd.StepDone | cmd.Evaluated | cmd.Departed | cmd.Replanned | cmd.StateRead):
            self._limit.worked(self._clock())

    def _next_event(self) -> ev.Event:
        """Wait for what happens next; it is a tick if it is time for one, however much else happens."""
        if (left_s := min(self._tick_s, self._limit.due_s) - self._clock()) > 0:
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=left_s)
        now_s = self._clock()
        if now_s >= self._limit.due_s:
            self._limit.tell()
            return ev.TimeUp(self._stop_after_s)
        self._tick_s = now_s + TICK_S
        come_again = filter(self._launcher.comes_again, tuple(self._control_server.channels))
        return ev.ClockTick(now_s, self._control_server.heard_s(), frozenset(come_again))

    def _note_arrival(self, event: ev.Event) -> None:
        """Take note of who has come, and let it be an event that somebody ended who has not."""
        if isinstance(event, ev.Said | ev.Left):
            self._coming.discard(event.member)
        if isinstance(event, ev.ClockTick):
            for member in sorted(self._coming - self._control_server.channels.keys()):
                if (how := self._launcher.ended(member, 0.0)) is not None:
                    self._events.put(ev.Left(member, how))
                    self._coming.discard(member)

    def _wait_for_hellos(self) -> dict[int, tuple[str, int]]:
        """Wait until every member that the job begins with is there, or one has died on the way."""
        places: dict[int, tuple[str, int]] = {}
        deadline_s = self._clock() + BOOT_TIMEOUT_S
        others: list[ev.Event] = []
        while len(places) < self._world_size:
            try:
                event = self._events.get(timeout=POLL_S)
            except queue.Empty:
                self._check_boot(self._founders - set(places), deadline_s)
                continue
            if isinstance(event, ev.Interrupted):
                raise event.as_error()
            is_later = isinstance(event, ev.Said | ev.Left) and event.member not in self._founders
            if is_later or isinstance(event, ev.HostReady | ev.ReleaseWanted):
                others.append(event)
            elif isinstance(event, ev.Left):
                raise self._died(f"rank {event.member} {event.status} while it started.")
            elif isinstance(event, ev.Said) and event.message["is"] == "hello":
                places[event.member] = (event.message["host"], event.message["pid"])
        self._coming -= self._founders
        for event in others:
            self._events.put(event)
        return places

    def _check_boot(self, missing: set[int], deadline_s: float) -> None:
        for rank in sorted(missing):
            how = self._launcher.ended(rank, 0.0)
            if how is not None:
                raise self._died(f"rank {rank} {how} before it reached the coordinator.")
        if self._clock() > deadline_s:
            names = ", ".join(map(str, sorted(missing)))
            raise RunError(f"rank {names} did not start within {BOOT_TIMEOUT_S:.0f} s.")

    def _died(self, text: str) -> WorkerLost:
        error = WorkerLost(text)
        self._add_last_lines(error)
        return error

    def _add_last_lines(self, error: BaseException) -> None:
        lines = self._launcher.last_lines()
        if lines:
            error.add_note("\n  ".join(("The last lines that ranks printed:", *lines)))

    def _send(self, message: cmd.Send) -> None:
        self._num_sent += 1
        order = {**message.message, NUMBER: self._num_sent}
        for member in message.members:
            if (channel := self._control_server.channels.get(member)) is None:
                continue  # it was let go of before somebody had something for it
            try:
                channel.send(order, message.blob)
            except ChannelClosed:
                continue  # its reader reports the loss, with how the member ended

    def _send_state(self, wanted: cmd.SendState) -> None:
        """Send a member a part of the checkpoint."""
        assert self._checkpoint is not None, "a rank asks for what it has been told of"
        data = self._checkpoint.read(wanted.start, wanted.stop)
        self._send(cmd.Send((wanted.member,), {"do": "take"}, data))

    def _plan_aside(self, asked: cmd.PlanAside) -> None:
        """Plan in a thread, while ranks are listened to."""
        plan = threading.Thread(target=lambda: self._events.put(plan_aside(asked)), name="nfold-plan", daemon=True)
        plan.start()

    def _take_state(self) -> None:
        self._checkpoint = self._kept_last()
        assert self._checkpoint is not None, "a checkpoint was kept just now"
        self._events.put(ev.StateTaken(self._checkpoint.header))

    def _set_timer(self, seconds: float) -> None:
        self._timers = [each for each in self._timers if each.is_alive()]
        timer = threading.Timer(seconds, lambda: self._events.put(ev.TimedOut()))
        timer.daemon = True
        timer.start()
        self._timers.append(timer)


def _is_order(command: cmd.ToShell, do: str = "") -> bool:
    return isinstance(command, cmd.Send) and do in ("", command.message["do"])
