"""The engine with tasks written by hand: what is played in which order, and what sets it free."""

import itertools
import threading
from array import array
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from nfold.core.graph import ModelGraph, Operator, Parameter, Tensor
from nfold.core.placement import Placement
from nfold.core.schedule import RankSchedule
from nfold.core.tasks import Backward, Elements, Forward, Load, OptimizerStep, Receive, Send, Signal
from nfold.errors import PeerLost
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.scheduling.schedule_compiler import compile_schedule
from nfold.runtime.step.engine import TAG_WINDOW, Engine
from nfold.transport.implementations.in_memory import MemoryNetwork

pytestmark = pytest.mark.timeout(30)


class ScriptedTransport:
    """Does nothing until the test says that something has happened."""

    rank, world_size = 0, 2

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], Any] = {}
        self.posted: dict[tuple[int, int], Any] = {}
        self.changed = threading.Condition()
        self.fail: Any = None

    def send(self, peer, tag, data, done):
        with self.changed:
            self.sent[peer, tag] = done
            self.changed.notify_all()

    def receive(self, peer, tag, into, done):
        with self.changed:
            self.posted[peer, tag] = done
            self.changed.notify_all()

    def on_failure(self, callback):
        self.fail = callback

    def wait_for(self, what):
        with self.changed:
            assert self.changed.wait_for(what, 10.0)


class Recorder:
    """Notes what it is told to do; some tasks do more."""

    def __init__(self, **extra: Any) -> None:
        self.done: list[str] = []
        self.extra = extra

    def perform(self, task, emit):
        self.done.append(task.kind)
        if task.kind in self.extra:
            self.extra[task.kind](emit)

    def outgoing(self, task, data):
        self.done.append(f"read {data.name}")
        return memoryview(b"data")

    def incoming(self, task, data):
        return memoryview(bytearray(4))

    def combine(self, task, data):
        self.done.append(f"take {data.name}")
        if data.name in self.extra:
            self.extra[data.name](None)


def engine(tasks, performer, transport=None, clock=None, num_events=20, num_tags=10, commits=False) -> Engine:
    schedule = RankSchedule(rank=0, segments=(), tasks=tuple(tasks), num_events=num_events, num_tags=num_tags)
    ticks = itertools.count(1)
    clock = clock or (lambda: float(next(ticks)))
    return Engine(schedule, transport or ScriptedTransport(), performer, {Elements: performer}, clock, commits=commits)


def load(event, *after):
    return Load(id=event, after=after, chunk=0)


def forward(event, *after, chunk=0):
    return Forward(id=event, after=after, chunk=chunk, segment=0)


def backward(event, *after, chunk=0, signals=()):
    return Backward(id=event, after=after, chunk=chunk, segment=0, signals=signals)


def update(event, *after):
    return OptimizerStep(id=event, after=after, gradients=None)


def message(name, after, chunk=None, tag=0, payload_bytes=4, peer=1):
    data = Elements("gradient", name, 0, 1, chunk)
    return {"after": after, "peer": peer, "tag": tag, "purpose": "reduce", "data": data, "payload_bytes": payload_bytes}


def send(event, name, *after, **fields):
    return Send(id=event, **message(name, after, **fields))


def receive(event, name, *after, **fields):
    return Receive(id=event, **message(name, after, **fields))


class Playing:
    """A step that is played on another thread while the test scripts its messages."""

    def __init__(self, engine, step=0, sizes=(1,), keep_spans=False):
        self.result, self.error = None, None

        def run():
            try:
                self.result = engine.play(step, sizes, keep_spans=keep_spans)
            except Exception as error:
                self.error = error

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def end(self):
        self._thread.join(10.0)
        assert not self._thread.is_alive(), "the step hangs"
        if self.error is not None:
            raise self.error
        return self.result


def test_compute_tasks_are_played_in_the_order_in_which_they_are_listed():
    performer = Recorder()
    tasks = [load(3), forward(2, 3), backward(1), update(0, 1)]
    player = engine(tasks, performer)
    for step in range(2):
        player.play(step, (1,), keep_spans=False)
    assert performer.done == ["LOAD", "F", "B", "UPDATE"] * 2


def test_a_message_goes_as_soon_as_its_signal_comes_and_not_when_its_task_ends():
    transport = ScriptedTransport()
    performer = Recorder(
        B=lambda emit: (emit(5), performer.done.append("rest of B"), transport.sent[1, 0]()),
    )
    signals = (Signal(event=5, reduction="b0", fraction=0.5),)
    engine([backward(0, signals=signals), send(1, "b0", 5)], performer, transport).play(0, (1,), keep_spans=False)
    assert performer.done == ["B", "read b0", "rest of B"]


def test_a_computation_waits_for_its_message():
    transport, performer = ScriptedTransport(), Recorder()
    playing = Playing(engine([forward(0, 1), receive(1, "x")], performer, transport))
    transport.wait_for(lambda: (1, 0) in transport.posted)
    assert performer.done == []
    transport.posted[1, 0]()
    played = playing.end()
    assert performer.done == ["take x", "F"]
    assert played.waited_s > 0


def test_a_message_that_is_early_is_taken_in_after_all_that_it_waits_for():
    transport = ScriptedTransport()
    performer = Recorder(F=lambda emit: transport.posted[1, 0]())
    engine([forward(0), backward(1), receive(2, "x", 1)], performer, transport).play(0, (1,), keep_spans=False)
    assert performer.done == ["F", "B", "take x"]


def test_a_message_that_passes_on_another_goes_without_the_compute_thread():
    transport = ScriptedTransport()
    free = threading.Event()
    performer = Recorder(F=lambda emit: free.wait(10.0))
    playing = Playing(engine([forward(0), receive(1, "x"), send(2, "y", 1)], performer, transport))
    transport.wait_for(lambda: (1, 0) in transport.posted)
    transport.posted[1, 0]()
    assert (1, 0) in transport.sent, "sent by the thread that brought x, while F still runs"
    free.set()
    transport.sent[1, 0]()
    playing.end()


def test_a_step_ends_when_its_last_message_has_gone():
    transport = ScriptedTransport()
    playing = Playing(engine([forward(0), send(1, "x", 0)], Recorder(), transport))
    transport.wait_for(lambda: (1, 0) in transport.sent)
    assert playing.result is None
    transport.sent[1, 0]()
    assert playing.end() is not None


def test_a_lost_peer_wakes_a_step_that_waits():
    transport = ScriptedTransport()
    playing = Playing(engine([forward(0, 1), receive(1, "x")], Recorder(), transport))
    transport.wait_for(lambda: (1, 0) in transport.posted)
    transport.fail(PeerLost("rank 1 is lost", peer=1))
    transport.fail(PeerLost("rank 2 is lost", peer=2))
    with pytest.raises(PeerLost, match="rank 1 is lost"):
        playing.end()


def test_a_step_that_commits_updates_nothing_before_all_its_messages_are_over():
    """The first bucket is summed long before the second, whose sum may never come."""
    transport, performer = ScriptedTransport(), Recorder()
    tasks = [receive(0, "a"), update(1, 0), receive(2, "b", tag=1), update(3, 2)]
    playing = Playing(engine(tasks, performer, transport, commits=True))
    transport.wait_for(lambda: (1, 1) in transport.posted)
    transport.posted[1, 0]()
    transport.posted[1, 1]()
    playing.end()
    assert performer.done == ["take a", "take b", "UPDATE", "UPDATE"]


@pytest.mark.parametrize("commits", [True, False])
def test_where_a_peer_is_lost_only_a_step_that_commits_has_updated_nothing(commits):
    transport, updated = ScriptedTransport(), threading.Event()
    performer = Recorder(UPDATE=lambda emit: updated.set())
    tasks = [receive(0, "a"), update(1, 0), receive(2, "b", tag=1), update(3, 2)]
    playing = Playing(engine(tasks, performer, transport, commits=commits))
    transport.wait_for(lambda: (1, 1) in transport.posted)
    transport.posted[1, 0]()
    assert commits or updated.wait(10.0)
    transport.fail(PeerLost("rank 1 is lost", peer=1))
    with pytest.raises(PeerLost):
        playing.end()
    assert updated.is_set() is not commits


def test_an_engine_that_has_ended_takes_nothing_in_and_waits_for_who_still_does():
    """What messages carry is used again by the engine of the next generation."""
    transport, inside, goes_on = ScriptedTransport(), threading.Event(), threading.Event()

    def hold_up(_):
        inside.set()
        assert goes_on.wait(10.0)
        performer.done.append("taken")

    performer = Recorder(x=hold_up)
    ended = engine([forward(0, 1, 2), receive(1, "x"), receive(2, "y", tag=1)], performer, transport)
    playing = Playing(ended)
    transport.wait_for(lambda: (1, 1) in transport.posted)
    bringing = threading.Thread(target=transport.posted[1, 0])
    bringing.start()
    assert inside.wait(10.0)
    transport.fail(PeerLost("rank 1 is lost", peer=1))
    with pytest.raises(PeerLost):
        playing.end()
    ending = threading.Thread(target=lambda: (ended.end(), performer.done.append("ended")))
    ending.start()
    ending.join(0.1)
    goes_on.set()
    for thread in (bringing, ending):
        thread.join(10.0)
    transport.posted[1, 1]()
    assert performer.done == ["take x", "taken", "ended"]


def test_after_a_failure_no_step_is_played_any_more():
    performer = Recorder()
    player = engine([forward(0)], performer)
    player.fail(PeerLost("rank 1 is lost", peer=1))
    with pytest.raises(PeerLost):
        player.play(0, (1,), keep_spans=False)
    assert performer.done == []


def test_what_a_computation_raises_ends_the_step():
    def boom(emit):
        raise KeyError("user")

    with pytest.raises(KeyError, match="user"):
        engine([forward(0)], Recorder(F=boom)).play(0, (1,), keep_spans=False)


def test_what_taking_in_a_message_raises_ends_the_step_and_not_the_transports_thread():
    def boom(emit):
        raise RuntimeError("cannot add")

    transport = ScriptedTransport()
    playing = Playing(engine([forward(0, 1), receive(1, "x")], Recorder(x=boom), transport))
    transport.wait_for(lambda: (1, 0) in transport.posted)
    transport.posted[1, 0]()
    with pytest.raises(RuntimeError, match="cannot add"):
        playing.end()


def test_the_tasks_of_an_empty_chunk_are_skipped():
    transport, performer = ScriptedTransport(), Recorder()
    tasks = [
        forward(0),
        forward(1, 2, chunk=1),
        receive(2, "a", chunk=1, tag=1),
        backward(3, 1, chunk=1, signals=(Signal(event=9, reduction="b0", fraction=1.0),)),
        send(4, "b", 3, chunk=1, tag=2),
        send(5, "b0", 9, 0, tag=3),
    ]
    playing = Playing(engine(tasks, performer, transport), sizes=(4, 0))
    transport.wait_for(lambda: (1, 3) in transport.sent)
    transport.sent[1, 3]()
    playing.end()
    assert performer.done == ["F", "read b0"]
    assert list(transport.sent) == [(1, 3)]
    assert transport.posted == {}


@pytest.mark.parametrize("step", [0, 1, TAG_WINDOW - 1, TAG_WINDOW, 3 * TAG_WINDOW + 5])
def test_neighbouring_steps_use_other_tags(step):
    transport = ScriptedTransport()
    playing = Playing(engine([send(0, "x", tag=3)], Recorder(), transport, num_tags=10), step=step)
    transport.wait_for(lambda: bool(transport.sent))
    assert list(transport.sent) == [(1, step % TAG_WINDOW * 10 + 3)]
    next(iter(transport.sent.values()))()
    playing.end()


def test_spans_are_noted_where_that_is_asked_for():
    transport = ScriptedTransport()
    performer = Recorder(F=lambda emit: transport.posted[1, 1](), B=lambda emit: transport.sent[1, 0]())
    tasks = [
        forward(0),
        send(1, "b0", 0, chunk=0, tag=0, payload_bytes=12),
        receive(2, "b1", tag=1, payload_bytes=34),
        backward(3, 0, 2),
    ]
    played = engine(tasks, performer, transport).play(0, (1,), keep_spans=True)
    spans = {span.name: span for span in played.spans}
    assert sorted(spans) == ["B0.0", "F0.0", "reduce b0 to 1", "reduce b1 from 1"]
    sent, came = spans["reduce b0 to 1"], spans["reduce b1 from 1"]
    assert (sent.peer, sent.payload_bytes, sent.purpose, sent.chunk) == (1, 12, "reduce", 0)
    assert (came.payload_bytes, came.reduction, came.chunk) == (0, "b1", -1), "bytes count where they are sent"
    assert all(0 <= span.start_s <= span.end_s <= played.end_s - played.begin_s for span in played.spans)
    assert spans["F0.0"].end_s <= spans["B0.0"].start_s
    assert played.seconds["F"] == spans["F0.0"].end_s - spans["F0.0"].start_s


def test_no_spans_are_kept_otherwise():
    played = engine([forward(0), update(1, 0)], Recorder()).play(0, (1,), keep_spans=False)
    assert played.spans == []
    assert played.seconds == {"LOAD": 0.0, "F": 1.0, "B": 0.0, "UPDATE": 1.0}


# Compiled schedules on whole numbers

SIZE = 11


class Adder:
    """Sums whole numbers: a rank's gradient of chunk c is c + 1 in every element, times the step's number plus one."""

    def __init__(self) -> None:
        self.gradient, self.value = array("i", [0] * SIZE), array("i", [0] * SIZE)
        self.staging: dict[int, array] = {}
        self.step = 0
        self.seen: dict[int, list[int]] = defaultdict(list)

    def perform(self, task, emit):
        if task.kind == "F" and not self.seen[self.step]:
            self.seen[self.step].append(task.chunk)
            for index in range(SIZE):
                self.gradient[index] = 0
        if task.kind == "B":
            for index in range(SIZE):
                self.gradient[index] += (task.chunk + 1) * (self.step + 1)
            for signal in task.signals:
                emit(signal.event)
        if task.kind == "UPDATE":
            for index in range(SIZE):
                self.value[index] = self.gradient[index]

    def outgoing(self, task, data):
        own = self.value if task.purpose == "pull" else self.gradient
        return memoryview(own)[data.start : data.stop].cast("B")

    def incoming(self, task, data):
        if task.combine == "copy":
            own = self.value if task.purpose == "pull" else self.gradient
            return memoryview(own)[data.start : data.stop].cast("B")
        self.staging[task.id] = array("i", [0] * (data.stop - data.start))
        return memoryview(self.staging[task.id]).cast("B")

    def combine(self, task, data):
        if task.combine == "add":
            for index, number in enumerate(self.staging[task.id]):
                self.gradient[data.start + index] += number


def tensor(name, producer, *consumers):
    return Tensor(name=name, producer=producer, consumers=consumers, bytes_per_sample=4.0, requires_grad=bool(producer))


GRAPH = ModelGraph(
    operators=(Operator(name="A", kind="op", inputs=("input",), outputs=("loss",), parameters=("w",)),),
    tensors=(tensor("input", "", "A"), tensor("loss", "A")),
    parameters=(
        Parameter(name="w", num_elements=SIZE, num_bytes=4 * SIZE, dtype="float32", trainable=True, users=("A",)),
    ),
    capture="fx",
)


@pytest.mark.parametrize("piece", [0, 2])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_ring_of_engines_gives_every_rank_the_exact_sum(world, piece):
    placement = Placement(num_chunks=world + 1, world_size=world, owners={"A": (*range(world), 0)})
    reductions = tuple(replace(each, piece_elements=piece) for each in buckets_of(GRAPH, placement, "ring", 1 << 20))
    schedule = compile_schedule(GRAPH, placement, reductions, batch_size=4 * world + 4)
    network, adders = MemoryNetwork(world), [Adder() for _ in range(world)]
    results: list[list[list[int]]] = [[] for _ in range(world)]

    def run(rank):
        player = Engine(
            schedule.ranks[rank], network.transport(rank), adders[rank], {Elements: adders[rank]}, lambda: 0.0
        )
        for step in range(3):
            adders[rank].step = step
            player.play(step, (4,) * (world + 1), keep_spans=True)
            results[rank].append(list(adders[rank].value))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert not any(thread.is_alive() for thread in threads)
    total = sum(range(1, world + 2))
    assert results == [[[total * (step + 1)] * SIZE for step in range(3)]] * world
    assert sum(network.transport(rank).sent_bytes for rank in range(world)) == 3 * schedule.sent_bytes
    assert schedule.sent_bytes == 2 * (world - 1) * 4 * SIZE
    network.close()


class EagerTransport(ScriptedTransport):
    """Is done with what it sends at once, as with short messages over idle links."""

    def send(self, peer, tag, data, done):
        super().send(peer, tag, data, done)
        done()


def test_rounds_that_go_at_once_go_in_order_however_many_they_are():
    count, tasks = 600, []
    for number in range(count):
        after = () if number < 2 else (2 * number - 4, 2 * number - 3)
        for peer in (1, 2):
            event = 2 * number + peer - 1
            tasks.append(send(event, f"{number}", *after, peer=peer, tag=event))
    transport = EagerTransport()
    engine(tasks, Recorder(), transport, num_events=2 * count, num_tags=2 * count).play(0, (), keep_spans=False)
    sent = [number for number, _ in itertools.groupby(tag // 2 for _, tag in transport.sent)]
    assert sent == list(range(count))
