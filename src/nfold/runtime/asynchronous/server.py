"""Serves one shard: a thread that asks the rules what to do about each request, and does it."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch

from nfold.core.schedule import StatisticsGroup
from nfold.planning.asynchronous.held_shard import Cut, HeldShard
from nfold.planning.asynchronous.snapshot_steps import SnapshotSteps
from nfold.planning.asynchronous.staleness import NO_TICKET, REQUEST_BYTES, Allowed, Answer, Apply, Event, Pushed, Shard
from nfold.runtime.asynchronous.shards import Slice, rows
from nfold.runtime.asynchronous.store import Store
from nfold.runtime.asynchronous.ticket_spans import TicketSpans
from nfold.runtime.asynchronous.tickets import Tickets
from nfold.runtime.asynchronous.worker_and_shard_messages import (
    NoMoreRequests,
    Request,
    Tags,
    decode_request,
    encode_reply,
)
from nfold.runtime.control.ticket_rows import Account
from nfold.runtime.parameters.buffers import as_bytes
from nfold.runtime.snapshots.shipments import Giving
from nfold.transport.protocol import Transport


@dataclass(frozen=True, slots=True)
class SnapshotGiven:
    """All buddies have a snapshot."""

    step: int


Stimulus = Request | Allowed | SnapshotGiven
Post = Callable[[Request], None]
TakeSnapshot = Callable[[int, float, Callable[[], None]], Giving | None]
"""Given the steps that are done, the seconds for which gradients were held back, and what to call once all buddies have
it; returns how they are given it, None if nobody is given any."""
IDLE_S = 0.05
"""A dedicated server that hears nothing for so long tells the coordinator what it has not told yet."""


class WorkerEnd(Protocol):
    """The server's end of its conversation with one worker."""

    gradients: Sequence[torch.Tensor]
    """Its last gradient, one tensor per part, until it is answered."""
    rows: Sequence[torch.Tensor]
    """The batch statistics that came with it, for the shard that keeps them."""

    def listen(self, post: Post) -> None:
        """Begin to take the worker's requests."""
        ...

    def answer(self, answer: Answer, store: Store) -> int:
        """Send the current values; return the bytes that were given to the transport."""
        ...


class RemoteWorker:
    """The conversation with a worker on another rank."""

    def __init__(
        self,
        worker: int,
        transport: Transport,
        tags: Tags,
        parts: tuple[Slice, ...],
        groups: tuple[StatisticsGroup, ...],
        tickets: Tickets,
        ticket_spans: TicketSpans,
    ) -> None:
        self._worker, self._transport, self._tags = worker, transport, tags
        self._groups, self._tickets, self._ticket_spans = groups, tickets, ticket_spans
        self.gradients: Sequence[torch.Tensor] = [part.empty() for part in parts]
        self.rows: Sequence[torch.Tensor] = []
        self._outgoing = [part.empty() for part in parts]
        self._number = self._asked = 0
        self._asked_s = 0.0
        """When the request that waits for values had come."""
        self._post: Post = _nobody

    def listen(self, post: Post) -> None:
        """Begin to take the worker's requests."""
        self._post = post
        self._listen()

    def answer(self, answer: Answer, store: Store) -> int:
        """Send a copy of the values, since later gradients may change them while these are still being sent."""
        store.read(self._outgoing)
        messages = [(self._tags.reply(self._asked), memoryview(encode_reply(answer)))]
        messages += [(self._tags.value(self._asked, i), as_bytes(part)) for i, part in enumerate(self._outgoing)]
        num_bytes = sum(data.nbytes for _, data in messages)
        gone = Countdown(len(messages), self._noting(answer.ticket, num_bytes))
        for tag, data in messages:
            self._transport.send(self._worker, tag, data, gone.one_done)
        return num_bytes

    def _noting(self, ticket: int, num_bytes: int) -> Callable[[], None]:
        """Note the request for a ticket's values, and return what notes that they have gone."""
        if ticket == NO_TICKET:
            return _nothing
        ticket_spans, worker = self._ticket_spans, self._worker
        begin_s = ticket_spans.clock()
        ticket_spans.received("ask", ticket, worker, REQUEST_BYTES, self._asked_s, self._asked_s)
        return lambda: ticket_spans.sent("values", ticket, worker, num_bytes, begin_s, ticket_spans.clock())

    def _listen(self) -> None:
        number, header = self._number, bytearray(REQUEST_BYTES)
        self._number += 1
        tag = self._tags.request(number)
        self._transport.receive(self._worker, tag, memoryview(header), lambda: self._heard(number, header))

    def _heard(self, number: int, header: bytearray) -> None:
        request = decode_request(self._worker, header, self._tickets.weight)
        if isinstance(request, Pushed):
            self._take_gradient(number, request)
        elif not isinstance(request, NoMoreRequests):
            self._asked, self._asked_s = number, self._ticket_spans.clock()
            self._post(request)
        else:
            self._post(request)
            return
        self._listen()

    def _take_gradient(self, number: int, request: Pushed) -> None:
        if not request.weight:
            self._post(request)
            return
        self.rows = [part.empty() for part in rows(self._groups, self._tickets.chunks(request.ticket))]
        parts = [*self.gradients, *self.rows]
        num_bytes = REQUEST_BYTES + sum(part.nbytes for part in parts)
        ticket_spans, begin_s = self._ticket_spans, self._ticket_spans.clock()

        def whole() -> None:
            ticket_spans.received("gradient", request.ticket, self._worker, num_bytes, begin_s, ticket_spans.clock())
            self._post(request)

        arrived = Countdown(len(parts), whole)
        for index, part in enumerate(parts):
            self._transport.receive(self._worker, self._tags.gradient(number, index), as_bytes(part), arrived.one_done)


class Server:
    """The server of one rank's shard."""

    def __init__(
        self,
        rules: Shard,
        store: Store,
        ends: Mapping[int, WorkerEnd],
        account: Account,
        ticket_spans: TicketSpans,
        tickets: Tickets,
        steps: SnapshotSteps,
        *,
        is_dedicated: bool,
        snapshot: TakeSnapshot,
        tell: Callable[[int, float], None],
        idle: Callable[[], None],
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
    ) -> None:
        """Begin to serve.

        Args:
            rules: decide.
            store: the tensors.
            ends: every worker.
            account: of this rank.
            ticket_spans: of this rank.
            tickets: what they stand for.
            steps: after which snapshots are due.
            snapshot: called when one is, from the thread that serves.
            is_dedicated: whether this rank only serves, so that its time is the shard's.
            tell: on a dedicated rank, called with the number of steps done, when there are more, and the seconds since
                the last time.
            idle: on a dedicated rank, called when nothing has come for a moment.
            fail: called with what ended the thread.
            clock: seconds.
        """
        self._rules, self.store, self._ends, self._account, self._tickets = rules, store, ends, account, tickets
        self._ticket_spans, self._snapshot = ticket_spans, snapshot
        self._holding = HeldShard(rules, len(ends), steps)
        self._giving: Giving | None = None
        """The last snapshot that was sent to buddies."""
        self._held_since_s: float | None = None
        """Since when gradients have been held back without a break."""
        self._is_dedicated, self._tell, self._idle, self._fail, self._clock = is_dedicated, tell, idle, fail, clock
        self._queue: queue.SimpleQueue[Stimulus | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._present = set(ends)
        self._failure: BaseException | None = None
        self._mark_s = clock()
        for end in ends.values():
            end.listen(self._queue.put)
        self._thread = threading.Thread(target=self._run, name="nfold-serve", daemon=True)
        self._thread.start()

    @property
    def histogram(self) -> dict[str, int]:
        """Return the number of gradients so far, by their staleness in updates."""
        return {str(staleness): count for staleness, count in sorted(self._rules.histogram.items())}

    @property
    def steps_done(self) -> int:
        """The number of steps whose gradients have all been applied to this shard."""
        return self._rules.steps_done

    def allow(self, steps: int) -> None:
        """Let workers begin steps before this one."""
        self._queue.put(Allowed(steps=steps))

    def wait_until(self, steps: int) -> None:
        """Wait until so many steps are applied.

        Raises:
            BaseException: what ended the server before.
        """
        self._wait(lambda: self._rules.steps_done >= steps)

    def wait_for_byes(self) -> None:
        """Wait until every worker has said that it wants nothing more.

        Raises:
            BaseException: what ended the server before.
        """
        self._wait(lambda: not self._present)

    def abandon(self, error: BaseException) -> None:
        """Stop serving because of an error, which every thread that waits, now or later, raises."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
        self._queue.put(None)

    def close(self) -> None:
        """End the thread and wait for it."""
        self._queue.put(None)
        self._thread.join()

    def _wait(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or is_so())
            if self._failure is not None:
                raise self._failure

    def _run(self) -> None:
        try:
            while (stimulus := self._next()) is not None:
                self._take(stimulus)
        except BaseException as error:
            self.abandon(error)
            self._fail(error)

    def _next(self) -> Stimulus | None:
        begin_s = self._clock()
        if self._is_dedicated and self._queue.empty():
            try:
                return self._queue.get(timeout=IDLE_S)
            except queue.Empty:
                self._idle()
            finally:
                self._account.spent("communication_s", self._clock() - begin_s)
            begin_s = self._clock()
        stimulus = self._queue.get()
        if self._is_dedicated:
            self._account.spent("communication_s", self._clock() - begin_s)
        return stimulus

    def _take(self, stimulus: Stimulus) -> None:
        if isinstance(stimulus, NoMoreRequests):
            with self._changed:
                self._present.discard(stimulus.worker)
                self._changed.notify_all()
            return
        if isinstance(stimulus, SnapshotGiven):
            self._holding.given(stimulus.step)
        else:
            self._holding.take(stimulus)
        while (found := self._holding.next()) is not None:
            if isinstance(found, Cut):
                self._cut(found.step)
            else:
                self._play(found)
        if self._giving is not None and self._holding.waits_for_buddies:
            self._giving.hurry()
        if not self._holding.holds_back:
            self._held_since_s = None
        elif self._held_since_s is None:
            self._held_since_s = self._clock()

    def _cut(self, step: int) -> None:
        held_s = 0.0 if self._held_since_s is None else self._clock() - self._held_since_s
        self._giving = self._snapshot(step, held_s, partial(self._queue.put, SnapshotGiven(step)))
        if self._giving is not None:
            self._holding.give(step, self._giving.lag)

    def _play(self, stimulus: Event) -> None:
        rested, before = self._rules.steps_done == self._rules.allowed, self._rules.steps_done
        commands = self._rules.handle(stimulus)
        if rested:
            self._begin_again()
        for command in commands:
            if isinstance(command, Apply):
                self._apply(command)
        self.store.advance(self._rules.steps_done)
        self._note_steps(before)
        for command in commands:
            if isinstance(command, Answer):
                self._answer(command)

    def _begin_again(self) -> None:
        """Nothing was trained for a while: that time is no step's."""
        self._mark_s = self._clock()
        if self._is_dedicated:
            self._account.forget()

    def _apply(self, command: Apply) -> None:
        begin_s = self._clock()
        if not self._is_dedicated:
            self._account.updating(begin_s)
        self.store.apply(command, {part.worker: self._ends[part.worker].gradients for part in command.parts})
        if self.store.norms is not None:
            for part in command.parts:
                self.store.norms.fold(self._ends[part.worker].rows)
        end_s = self._clock()
        if self._is_dedicated:
            self._account.spent("update_s", end_s - begin_s)
        else:
            self._account.updated(end_s)
        self._ticket_spans.updated(command.parts[0].ticket, begin_s, end_s)

    def _answer(self, answer: Answer) -> None:
        num_bytes = self._ends[answer.worker].answer(answer, self.store)
        if answer.ticket != NO_TICKET:
            self._account.sent(self._tickets.step(answer.ticket), num_bytes)

    def _note_steps(self, before: int) -> None:
        done = self._rules.steps_done
        if done == before:
            return
        now_s = self._clock()
        elapsed_s, self._mark_s = now_s - self._mark_s, now_s
        for step in range(before, done):
            self._account.lasted(step, elapsed_s / (done - before))
        if self._is_dedicated:
            self._tell(done, elapsed_s)
        with self._changed:
            self._changed.notify_all()


class Countdown:
    """Calls an action once a number of things are done, on whatever threads."""

    def __init__(self, count: int, action: Callable[[], None]) -> None:
        self._left, self._action = count, action
        self._lock = threading.Lock()

    def one_done(self) -> None:
        """Note that one of the things is done."""
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._action()


def _nothing() -> None: ...


def _nobody(request: Request) -> None:
    del request
