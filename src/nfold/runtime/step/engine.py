"""Plays one rank's tasks in wall time: compute in the listed order, messages as soon as they may go.

The engine knows tasks, not strategies. What a compute task does is the performer's business, where bytes lie is the
store's of their kind. Messages complete on the transport's threads; whichever thread completes the last thing that a
message waited for starts it, so no message waits for a thread to wake up.

    play(step) --> post every Receive
               --> for each compute task in order: wait for its events, perform, complete
               --> wait for the messages that are left
               --> where it commits: what changes the training's state, which waits for nobody any more
"""

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nfold.core.schedule import RankSchedule
from nfold.core.tasks import (
    COMMITTED,
    Backward,
    ComputeTask,
    MessageEnd,
    Receive,
    Send,
    Task,
    chunk_of,
)
from nfold.core.trace import ReductionParts, Span, span_of
from nfold.runtime.failures.stalls import RunningTask, TaskWatch
from nfold.runtime.step.reduction_times import ReductionTimes
from nfold.transport.protocol import Transport
from nfold.transport.tags import Use, tag_of

Emit = Callable[[int], None]

TAG_WINDOW = 64
"""Steps before a tag is used again. Two ranks are at most one step apart when a message passes between them: neither
ends a step before the other has begun it (`planning/reductions/acknowledgements.py`). In between, a batch too short for
their chunks may take them one further."""


class Performer(Protocol):
    """Computes."""

    def perform(self, task: ComputeTask, emit: Emit) -> None:
        """Compute; call `emit` with the events that it signals on the way."""
        ...


class DataStore(Protocol):
    """Holds what messages carry: flat buffers, or activations."""

    def outgoing(self, task: Send, data: Any, /) -> memoryview:
        """Return the bytes to send."""
        ...

    def incoming(self, task: Receive, data: Any, /) -> memoryview:
        """Return where received bytes may be written at any time in the step."""
        ...

    def combine(self, task: Receive, data: Any, /) -> None:
        """Take in what was received, after all that it waits for."""
        ...


@dataclass(slots=True)
class Played:
    """Seconds of one step on this rank."""

    begin_s: float
    end_s: float = 0.0
    waited_s: float = 0.0
    """The compute lane had nothing to do but wait for messages."""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("LOAD", "F", "B", "UPDATE"), 0.0))
    spans: list[Span] = field(default_factory=list)
    reductions: tuple[ReductionParts, ...] = ()


class Engine:
    """Plays one rank's schedule, step after step. Threads: `play` computes; the transport's threads call back.

    Attributes:
        on_commit: called with each step whose messages are all over, before it changes the training's state.
    """

    def __init__(
        self,
        schedule: RankSchedule,
        transport: Transport,
        performer: Performer,
        stores: Mapping[type, DataStore],
        clock: Callable[[], float],
        *,
        times_reductions: bool = True,
        commits: bool = False,
        tasks: TaskWatch | None = None,
    ) -> None:
        """Args:
        schedule: what the rank plays.
        transport: to the other ranks.
        performer: computes.
        stores: hold what messages carry, by the kind of their data.
        clock: seconds.
        times_reductions: whether to time them.
        commits: whether the state changes only once all messages of the step are over: a step that fails has changed
            nothing then. No message may wait for what changes it.
        tasks: is told what is done now; None: nobody looks.
        """
        self.on_commit: Callable[[int], None] | None = None
        self._rank, self._num_tags = schedule.rank, max(1, schedule.num_tags)
        last = COMMITTED if commits else ()
        compute = tuple(task for task in schedule.tasks if not isinstance(task, MessageEnd))
        self._compute = tuple(task for task in compute if not isinstance(task, last))
        self._commit = tuple(task for task in compute if isinstance(task, last))
        self._receives = tuple(task for task in schedule.tasks if isinstance(task, Receive))
        self._messages = {task.id: task for task in schedule.tasks if isinstance(task, MessageEnd)}
        self._dependents: list[list[int]] = [[] for _ in range(schedule.num_events)]
        self._counts = [0] * schedule.num_events
        for task in schedule.tasks:
            self._counts[task.id] = len(task.after) + isinstance(task, Receive)
            for event in task.after:
                self._dependents[event].append(task.id)
        self._stores = {task.id: stores[type(task.data)] for task in self._messages.values()}
        self._transport, self._performer, self._clock = transport, performer, clock
        self._times = ReductionTimes(schedule.tasks if times_reductions else (), clock)
        self._tasks = tasks or TaskWatch()
        self._changed = threading.Condition()
        self._awaited: Callable[[], bool] | None = None
        """What the compute lane waits for. Waking it for every message would cost more than most messages do."""
        self._failure: BaseException | None = None
        self._thread = threading.local()
        self._num_inside, self._is_over = 0, False
        """Threads that take in an event just now, and whether no other may."""

    def fail(self, error: BaseException) -> None:
        """Make the step under way, and any later one, raise."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def end(self) -> None:
        """Take in nothing more: once this returns, no other thread reads or writes what messages carry."""
        with self._changed:
            self._is_over = True
            self._changed.wait_for(lambda: self._num_inside == 0)

    def play(self, step: int, sizes: tuple[int, ...], *, keep_spans: bool) -> Played:
        """Play one step.

        Args:
            step: counts from 0; sets the tags of its messages.
            sizes: samples of each chunk; the tasks of an empty chunk are skipped on both ends.
            keep_spans: whether to note when each task began and ended.

        Raises:
            TransportError: a peer is lost. Where it commits, nothing has been updated then.
        """
        played = Played(begin_s=self._clock())
        self._waiting = list(self._counts)
        self._left = len(self._messages)
        self._started = [0.0] * len(self._counts)
        self._played = played if keep_spans else None
        self._times.begin()
        self._transport.on_failure(self.fail)
        self._is_short = 0 in sizes
        self._sizes, self._base_tag = sizes, tag_of(Use.STEP, step % TAG_WINDOW * self._num_tags)
        self._post()
        for task in self._compute:
            self._wait(functools.partial(self._is_ready, task.id), played)
            self._perform(task, played, step)
        self._wait(lambda: self._left == 0, played)
        if self.on_commit is not None:
            self.on_commit(step)
        for task in self._commit:
            self._perform(task, played, step)
        played.end_s = self._clock()
        self._tasks.step_done(played.end_s - played.begin_s)
        played.reductions = self._times.parts(step, self._rank)
        return played

    def _post(self) -> None:
        for task in self._receives:
            if self._skipped(task):
                self._happened(task.id, is_arrival=True)
            else:
                into = self._stores[task.id].incoming(task, task.data)
                arrived = functools.partial(self._happened, task.id, is_arrival=True)
                self._transport.receive(task.peer, self._base_tag + task.tag, into, arrived)
        first = [task for task in self._messages.values() if isinstance(task, Send) and not task.after]
        self._in_order(first, deque())

    def _is_ready(self, event: int) -> bool:
        return self._waiting[event] == 0

    def _skipped(self, task: Task) -> bool:
        chunk = chunk_of(task) if self._is_short else None
        return chunk is not None and self._sizes[chunk] == 0

    def _wait(self, is_ready: Callable[[], bool], played: Played) -> None:
        with self._changed:
            if self._failure is None and is_ready():
                return
            begin_s, self._awaited = self._clock(), is_ready
            self._changed.wait_for(lambda: self._failure is not None or is_ready())
            self._awaited = None
            played.waited_s += self._clock() - begin_s
            if self._failure is not None:
                raise self._failure

    def _perform(self, task: ComputeTask, played: Played, step: int) -> None:
        if self._skipped(task):
            for signal in task.signals if isinstance(task, Backward) else ():
                self._happened(signal.event)
            self._happened(task.id)
            return
        begin_s = self._clock()
        self._tasks.begin(RunningTask(task.kind, step, threading.get_ident(), begin_s))
        try:
            self._performer.perform(task, self._happened)
        finally:
            end_s = self._clock()
            self._tasks.end(end_s - begin_s)
        played.seconds[task.kind] += end_s - begin_s
        if self._played is not None:
            played.spans.append(self._span(task, begin_s, end_s))
        self._happened(task.id)

    def _happened(self, event: int, *, is_arrival: bool = False) -> None:
        """Note an event (or that the bytes of a Receive are there) and start whatever waited for nothing else."""
        pending: deque[tuple[int, bool]] | None = getattr(self._thread, "pending", None)
        if pending is not None:  # a message has gone while this thread starts others: those are first
            pending.append((event, is_arrival))
            return
        with self._changed:
            if self._is_over:
                return
            self._num_inside += 1
        try:
            self._in_order((), deque([(event, is_arrival)]))
        except Exception as error:  # of a transport's thread: the step must end with it
            self.fail(error)
        finally:
            with self._changed:
                self._num_inside -= 1
                if self._is_over:
                    self._changed.notify_all()

    def _in_order(self, messages: Iterable[Send | Receive], pending: deque[tuple[int, bool]]) -> None:
        """Start messages, and then what waits for events, without a message of a later turn in between."""
        self._thread.pending = pending
        try:
            pending.extend([(message.id, False) for message in messages if self._start(message)])
            self._propagate(pending)
        finally:
            self._thread.pending = None

    def _propagate(self, pending: deque[tuple[int, bool]]) -> None:
        while pending:
            event, is_arrival = pending.popleft()
            ready: list[int] = []
            with self._changed:
                for waiter in (event,) if is_arrival else self._dependents[event]:
                    self._waiting[waiter] -= 1
                    if self._waiting[waiter] == 0:
                        ready.append(waiter)
                    if not is_arrival:
                        self._started[waiter] = self._clock() if self._played is not None else 0.0
                if not is_arrival:
                    self._times.happened(event, self._started[event])
                    self._left -= event in self._messages
                if self._awaited is not None and self._awaited():
                    self._changed.notify_all()
            messages = (self._messages[waiter] for waiter in ready if waiter in self._messages)
            pending.extend((message.id, False) for message in messages if self._start(message))

    def _start(self, task: Send | Receive) -> bool:
        """Begin a message that waits for nothing any more; return whether it is over at once."""
        if isinstance(task, Receive):
            if not self._skipped(task):
                self._stores[task.id].combine(task, task.data)
                self._note(task)
            return True
        if self._skipped(task):
            return True
        self._started[task.id] = self._clock()
        data = self._stores[task.id].outgoing(task, task.data)
        self._transport.send(task.peer, self._base_tag + task.tag, data, lambda: self._sent(task))
        return False

    def _sent(self, task: Send) -> None:
        self._note(task)
        self._happened(task.id)

    def _note(self, task: Task) -> None:
        played = self._played
        if played is not None:
            with self._changed:
                played.spans.append(self._span(task, self._started[task.id] or played.begin_s, self._clock()))

    def _span(self, task: Task, begin_s: float, end_s: float) -> Span:
        zero_s = self._played.begin_s if self._played else 0.0
        num_bytes = task.payload_bytes if isinstance(task, Send) else 0
        return span_of(self._rank, task, begin_s - zero_s, end_s - zero_s, num_bytes)
