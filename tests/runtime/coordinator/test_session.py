"""The shell of a job: what it started ends with it, whenever somebody wants it to end."""

import itertools
import queue
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nfold.core.members import Turnover
from nfold.core.trace import StepParts
from nfold.errors import ClusterError
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.session import Session


class Server:
    """Nobody comes."""

    host, port, channels = "127.0.0.1", 4000, {}
    closed = False

    def __init__(self):
        self._numbers, self.forgotten = itertools.count(), []

    def expect(self):
        return next(self._numbers)

    def heard_s(self):
        return {}

    def forget(self, member):
        self.forgotten.append(member)

    def close(self):
        self.closed = True


class Launcher:
    """Starts nothing, and is interrupted while it does."""

    def __init__(self, interrupted_at, by):
        self.started, self.stopped, self.released, self.ends, self.come_again = [], [], [], {}, set()
        self._interrupted_at, self._by = interrupted_at, by

    def start(self, rank, host, port, token):
        self.started.append(rank)
        if rank == self._interrupted_at:
            signal.raise_signal(self._by)

    def ended(self, rank, timeout_s):
        return self.ends.get(rank)

    def comes_again(self, rank):
        return rank in self.come_again

    def release(self, rank, *, is_lost=False, why=""):
        self.released.append(rank)

    def last_lines(self):
        return []

    def stop(self, grace_s):
        self.stopped.append(grace_s)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_more_ranks_are_started_once_it_is_told_to_end(by):
    control_server, launcher = Server(), Launcher(2, by)
    session = Session(
        None, launcher, control_server, queue.SimpleQueue(), world_size=400, token="t", log=lambda text: None
    )
    before = signal.getsignal(by)

    with pytest.raises(KeyboardInterrupt):
        session.__enter__()

    assert launcher.started == [0, 1, 2]
    assert launcher.stopped == [0.0]
    assert control_server.closed
    assert signal.getsignal(by) == before


class Deaf:
    """A rank's channel."""

    def send(self, message, blob=b""):
        pass


class Scripted:
    """A coordinator that has ordered sixteen steps, of which four are done, two seconds each."""

    def __init__(self, asynchrony):
        self.heard = None
        plan = SimpleNamespace(asynchrony=asynchrony)
        part = StepParts.from_row([3, 0, 2.0, *[0.0] * 6, 0, 1])
        self._commands = [
            cmd.Planned(None, plan, 99, EpochSteps.even(99), 0, None),
            cmd.Send((0,), {"do": "until", "step": 16}),
            cmd.StepDone(2, 0, 0.5, (part,), None),
            cmd.StepDone(3, 0, 0.5, (part,), None),
        ]

    def start(self, places):
        return self._commands

    def handle(self, event):
        self.heard = event
        return [cmd.Finished()]


@pytest.mark.parametrize(("asynchrony", "hears"), [(object(), ev.TimeUp), (None, ev.ClockTick)])
def test_asynchronous_ranks_are_told_that_the_time_is_over_before_what_they_were_given_to_do(asynchrony, hears):
    """Others end with the step under way."""
    events, coordinator, control_server = queue.SimpleQueue(), Scripted(asynchrony), Server()
    events.put(ev.Said(0, {"is": "hello", "host": "h", "pid": 1}))
    control_server.channels = {0: Deaf()}
    now_s = 0.0
    given = {"world_size": 1, "token": "t", "log": lambda text: None, "clock": lambda: now_s}
    session = Session(
        coordinator, Launcher(None, None), control_server, events, stop_in_s=100.0, stop_after_s=100.0, **given
    )
    for happening in session.run():
        if isinstance(happening, cmd.StepDone):
            now_s = 80.0
    assert isinstance(coordinator.heard, hears)


class Listening:
    """A coordinator that notes what it hears, and says what a test tells it to."""

    def __init__(self, *answers):
        self.places, self.heard, self._answers = None, [], list(answers)

    def start(self, places):
        self.places = places
        return []

    def handle(self, event):
        self.heard.append(event)
        return self._answers.pop(0)


def test_who_comes_while_the_first_ones_start_waits_for_its_turn():
    events, coordinator = queue.SimpleQueue(), Listening([cmd.Finished()])
    newcomer = ev.Said(1, {"is": "hello", "host": "h", "pid": 2})
    for event in (newcomer, ev.Said(0, {"is": "hello", "host": "h", "pid": 1})):
        events.put(event)
    given = {"world_size": 1, "token": "t", "log": lambda text: None, "clock": lambda: -5.0}
    list(Session(coordinator, Launcher(None, None), Server(), events, **given).run())
    assert coordinator.places == {0: ("h", 1)}
    assert coordinator.heard == [newcomer]


def test_members_are_started_at_any_time_and_let_go():
    events, now_s = queue.SimpleQueue(), 0.0
    server, launcher = Server(), Launcher(None, None)
    coordinator = Listening([], [], [cmd.LetGo(1), cmd.Finished()])
    given = {"world_size": 1, "token": "t", "log": lambda text: None, "clock": lambda: now_s}
    session = Session(coordinator, launcher, server, events, **given)
    with session:
        events.put(ev.Said(0, {"is": "hello", "host": "h", "pid": 1}))
        happenings = session.run()
        next(happenings)
        assert session.request(2) == (1, 2)
        session.release(2)
        launcher.ends[1] = "exited with code 4"
        launcher.come_again = {1}
        for _ in happenings:
            pass
    assert launcher.started == [0, 1, 2]
    tick, *others = coordinator.heard
    assert isinstance(tick, ev.ClockTick)
    gone = ev.Left(1, "exited with code 4", comes_again=True)
    assert others[:2] == [ev.ReleaseWanted(2), gone], "who died before it could say so"
    assert (server.forgotten, launcher.released) == ([1], [1])


PI = SimpleNamespace(name="pi-2")


class Patient(Scripted):
    """One that has all the time in the world."""

    def handle(self, event):
        return [] if isinstance(event, ev.ClockTick) else super().handle(event)


def hear_of_a_host(control_server: Server, launcher: Launcher) -> object:
    """Let a host come while a job of one rank runs; return what its coordinator heard last."""
    control_server.channels, coordinator, events = {0: Deaf()}, Patient(None), queue.SimpleQueue()
    session = Session(coordinator, launcher, control_server, events, world_size=1, token="t", log=lambda text: None)
    events.put(ev.HostReady(PI))
    events.put(ev.Said(0, {"is": "hello", "host": "here", "pid": 1}))
    with session:
        list(session.run())
    return coordinator.heard


def test_a_member_is_started_on_a_host_that_comes():
    launcher = Launcher(None, None)
    assert hear_of_a_host(Server(), launcher) == ev.MemberStarted(1, PI)
    assert launcher.started == [0, 1]


def test_a_host_that_has_gone_before_its_member_is_started_ends_nothing():
    control_server, launcher = Server(), Launcher(None, None)

    def start(member, *_):
        if member:
            raise ClusterError("pi-2 has gone")

    launcher.start = start
    assert hear_of_a_host(control_server, launcher) == ev.HostGone("pi-2")
    assert control_server.forgotten == [1], "nobody may come with its number"


def test_the_clock_tells_whose_hosts_would_have_other_members():
    server, launcher, events = Server(), Launcher(None, None), queue.SimpleQueue()
    server.channels, launcher.come_again = {0: Deaf(), 2: Deaf()}, {1, 2}
    session = Session(None, launcher, server, events, world_size=1, token="t", log=lambda text: None)
    assert session._next_event().come_again == {2}


def test_another_plan_is_written_down_once_ranks_play_it():
    """Or before anything else is told but notes; nobody waits for an order until a disk has it."""
    server, events = Server(), queue.SimpleQueue()
    session = Session(None, Launcher(None, None), server, events, world_size=1, token="t", log=lambda text: None)
    connect, until = (cmd.Send((0,), {"do": do}) for do in ("connect", "until"))
    plan, note, read = cmd.Replanned(None, None, 3), cmd.Noted("who comes"), cmd.StateRead(1)
    assert session._orders_first([note, plan, connect]) == [connect, note]
    assert session._orders_first([]) == []
    assert session._orders_first([cmd.LetGo(0), note, until]) == [until, plan, cmd.LetGo(0), note]
    assert session._orders_first([note, plan, until]) == [until, note, plan]
    assert session._orders_first([note, until]) == [note, until]
    placed, finish = cmd.Placed(None), cmd.Send((0,), {"do": "finish"})
    session._orders_first([plan])
    assert session._orders_first([note, placed, finish]) == [placed, finish, plan, note], "who gave samples away goes"
    session._orders_first([plan])
    assert session._orders_first([read]) == [plan, read], "what it was read for is known"
    waits = replace(plan, num_lacking=1)
    assert session._orders_first([waits, connect]) == [connect, waits], "ranks may play nothing for long"
    session._orders_first([plan])
    assert session._orders_first([cmd.Failed(RuntimeError())])[0] == plan


@pytest.mark.parametrize(
    "happened",
    [cmd.Departed(Turnover(), 4), cmd.Replanned(None, None, 4), cmd.StateRead(1)],
    ids=lambda each: type(each).__name__,
)
def test_how_long_ranks_did_not_train_is_not_what_a_checkpoint_takes(happened):
    clock = iter((0.0, 2.0, 60.0, 61.0)).__next__
    given = {"world_size": 1, "token": "t", "log": lambda text: None, "clock": clock}
    session = Session(None, Launcher(None, None), Server(), queue.SimpleQueue(), stop_in_s=100.0, **given)
    for each in (cmd.KeepCheckpoint(4, None), happened, cmd.KeepCheckpoint(8, None)):
        session._note_time(each)
    assert session._limit.due_s == 99.0
