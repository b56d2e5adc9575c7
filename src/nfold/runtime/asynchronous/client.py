"""A worker of an asynchronous run: takes a ticket, pulls values, computes, pushes the gradient, again and again."""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from nfold.planning.asynchronous.staleness import (
    NO_TICKET,
    REPLY_BYTES,
    REQUEST_BYTES,
    Answer,
    Asked,
    Pulled,
    Pushed,
    Refreshed,
)
from nfold.runtime.asynchronous.server import Countdown, Post
from nfold.runtime.asynchronous.shards import Slots
from nfold.runtime.asynchronous.store import Store
from nfold.runtime.asynchronous.ticket_spans import TicketSpans
from nfold.runtime.asynchronous.tickets import Tickets
from nfold.runtime.asynchronous.worker_and_shard_messages import (
    NoMoreRequests,
    Request,
    Tags,
    decode_reply,
    encode_request,
)
from nfold.runtime.control.ticket_rows import Account
from nfold.transport.protocol import Transport

FLUSH_S = 0.05
"""Who waits for longer tells the coordinator first what it has not told yet."""


class Pending:
    """Counts messages that are under way, so that one thread can wait for all of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left = 0
        self._failure: BaseException | None = None

    def more(self, count: int = 1) -> None:
        """Expect `count` messages more."""
        with self._changed:
            self._left += count

    def one_done(self) -> None:
        """Note that one message has been sent or received."""
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Let every thread that waits, now or later, raise this error."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all messages are done; return whether they are.

        Args:
            timeout_s: seconds to wait at most; None: without end.

        Raises:
            BaseException: what `fail` was called with.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._left == 0, timeout_s)
            if self._failure is not None:
                raise self._failure
            return self._left == 0


class ServerEnd(Protocol):
    """The worker's end of its conversation with one shard."""

    def request(self, request: Request, pending: Pending) -> int:
        """Send a request, and with a push its gradient; return the bytes that were given to the transport."""
        ...

    def take(self) -> Answer:
        """Return the answer to the last request; its values are in place by then."""
        ...


class RemoteServer:
    """The conversation with a shard on another rank."""

    def __init__(
        self,
        worker: int,
        server: int,
        transport: Transport,
        tags: Tags,
        values: Slots,
        gradients: Slots,
        rows_of: Callable[[int], Slots],
        ticket_spans: TicketSpans,
    ) -> None:
        self._worker, self._server, self._transport, self._tags = worker, server, transport, tags
        self._values, self._gradients, self._rows_of, self._ticket_spans = values, gradients, rows_of, ticket_spans
        self._number = 0
        self._header = bytearray(REPLY_BYTES)
        self._asked_s = self._gone_s = self._answered_s = self._came_s = 0.0
        """When the last request was sent and had gone; when its answer began to come and was there."""

    def request(self, request: Request, pending: Pending) -> int:
        """Send a request; `pending` counts the messages that it causes."""
        number = self._number
        self._number += 1
        data = [(self._tags.request(number), memoryview(encode_request(request)))]
        if isinstance(request, Pushed):
            data += self._gradient(number, request)
        elif not isinstance(request, NoMoreRequests):
            self._expect(number, pending)
        num_bytes = sum(part.nbytes for _, part in data)
        gone = Countdown(len(data), self._noting(request, num_bytes))
        pending.more(len(data))

        def one_gone() -> None:
            gone.one_done()
            pending.one_done()

        for tag, part in data:
            self._transport.send(self._server, tag, part, one_gone)
        return num_bytes

    def take(self) -> Answer:
        """Return the answer to the last request."""
        self._values.unpack()
        answer = decode_reply(self._worker, self._header)
        if answer.ticket != NO_TICKET:
            num_bytes = REPLY_BYTES + sum(wire.nbytes for wire in self._values.wires())
            self._ticket_spans.sent("ask", answer.ticket, self._server, REQUEST_BYTES, self._asked_s, self._gone_s)
            self._ticket_spans.received(
                "values", answer.ticket, self._server, num_bytes, self._answered_s, self._came_s
            )
        return answer

    def _noting(self, request: Request, num_bytes: int) -> Callable[[], None]:
        """Return what notes that a request has gone; of which ticket one for values is, its answer says."""
        clock = self._ticket_spans.clock
        begin_s = clock()
        if isinstance(request, Pushed):
            ticket = request.ticket
            return lambda: self._ticket_spans.sent("gradient", ticket, self._server, num_bytes, begin_s, clock())
        self._asked_s = begin_s
        return self._note_gone

    def _note_gone(self) -> None:
        self._gone_s = self._ticket_spans.clock()

    def _gradient(self, number: int, request: Pushed) -> list[tuple[int, memoryview]]:
        if not request.weight:
            return []
        parts = (self._gradients, self._rows_of(request.ticket))
        for slots in parts:
            slots.pack()
        wires = [wire for slots in parts for wire in slots.wires()]
        return [(self._tags.gradient(number, index), wire) for index, wire in enumerate(wires)]

    def _expect(self, number: int, pending: Pending) -> None:
        wires = self._values.wires()
        pending.more(1 + len(wires))

        def answered() -> None:
            self._answered_s = self._came_s = self._ticket_spans.clock()
            pending.one_done()

        def came() -> None:
            self._came_s = self._ticket_spans.clock()
            pending.one_done()

        self._transport.receive(self._server, self._tags.reply(number), memoryview(self._header), answered)
        for index, wire in enumerate(wires):
            self._transport.receive(self._server, self._tags.value(number, index), wire, came)


class Local:
    """Both ends of a conversation within one rank: nothing travels, and the gradient is read where it lies.

    It lies still until the worker has new values from this shard, and those come after the gradient was applied.
    """

    def __init__(
        self,
        values: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
        rows_of: Callable[[int], Sequence[torch.Tensor]],
        rank: int,
        ticket_spans: TicketSpans,
    ) -> None:
        self.gradients: Sequence[torch.Tensor] = gradients
        self.rows: Sequence[torch.Tensor] = ()
        self._values, self._rows_of = values, rows_of
        self._rank, self._ticket_spans, self._asked_s = rank, ticket_spans, 0.0
        self._pending = Pending()
        self._answer: Answer | None = None

    def listen(self, post: Post) -> None:
        """Begin to take the worker's requests."""
        self._post = post

    def answer(self, answer: Answer, store: Store) -> int:
        """Copy the values to where the worker computes with them, while the worker waits."""
        begin_s = self._ticket_spans.clock()
        store.read(self._values)
        if answer.ticket != NO_TICKET:
            self._ticket_spans.received("ask", answer.ticket, self._rank, 0, self._asked_s, self._asked_s)
            self._ticket_spans.sent("values", answer.ticket, self._rank, 0, begin_s, self._ticket_spans.clock())
        self._answer = answer
        self._pending.one_done()
        return 0

    def request(self, request: Request, pending: Pending) -> int:
        """Give the shard a request; nothing is sent."""
        if isinstance(request, Pushed):
            self.rows = self._rows_of(request.ticket)
        elif not isinstance(request, NoMoreRequests):
            self._pending, self._asked_s = pending, self._ticket_spans.clock()
            pending.more()
        self._post(request)
        return 0

    def take(self) -> Answer:
        """Return the answer to the last request."""
        assert self._answer is not None, "an answer is taken when it is there"
        return self._answer


class Computing(Protocol):
    """Computes the gradients of tickets."""

    def prepare(self, ticket: int) -> None:
        """Start to load a ticket's samples."""
        ...

    def compute(self, ticket: int) -> None:
        """Compute a ticket's gradient, the mean over its samples, into the buffers, and note the time that it took."""
        ...


class Client:
    """The worker of one rank. It works in a thread of its own from the first `allow` on."""

    def __init__(
        self,
        worker: int,
        servers: Sequence[ServerEnd],
        computing: Computing,
        account: Account,
        tickets: Tickets,
        *,
        first_step: int,
        tell: Callable[[int, float], None],
        flush: Callable[[], None],
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
    ) -> None:
        """Begin to wait for work.

        Args:
            worker: its rank.
            servers: the one that hands out tickets first.
            computing: does the work.
            account: of this rank.
            tickets: what they stand for.
            first_step: where training goes on.
            tell: called with the number of steps done, when it has grown, and the seconds since the last time.
            flush: called before waiting for long.
            fail: called with what ended the thread.
            clock: seconds.
        """
        self._worker, self._servers, self._computing = worker, servers, computing
        self._account, self._tickets = account, tickets
        self._tell, self._flush, self._fail, self._clock = tell, flush, fail, clock
        self._pending = Pending()
        self._changed = threading.Condition()
        self._allowed = self._refreshed = first_step
        self.steps_done = first_step
        self._ends = self._is_over = False
        self._telling, self._ticket_clock = threading.Lock(), 0
        self._since_s = clock()
        self._thread = threading.Thread(target=self._run, name="nfold-worker", daemon=True)
        self._thread.start()

    def allow(self, steps: int) -> None:
        """Let the worker work on steps before this one."""
        with self._changed:
            self._allowed = max(self._allowed, steps)
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all workers are done with the allowed steps, and this one holds the resulting values."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._refreshed >= self._allowed)
        self._pending.wait()

    def note_steps(self, steps_done: int) -> None:
        """Tell of steps that are done, on whatever thread they are noticed."""
        with self._telling:
            if steps_done > self.steps_done:
                self.steps_done, since_s, self._since_s = steps_done, self._since_s, self._clock()
                self._tell(steps_done, self._since_s - since_s)

    def end(self) -> None:
        """Tell the shards that this worker wants nothing more; no work may be left."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        self._thread.join()
        self._pending.wait()

    def abandon(self, error: BaseException) -> None:
        """Stop as soon as possible, because of an error."""
        self._pending.fail(error)
        with self._changed:
            self._ends = self._is_over = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the thread to end."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._has_work():
                self._turn()
            for server in self._servers:
                server.request(NoMoreRequests(worker=self._worker), self._pending)
            self._pending.wait()
        except BaseException as error:
            self.abandon(error)
            self._fail(error)

    def _has_work(self) -> bool:
        """Wait for something to do; return False when there will be nothing more."""
        with self._changed:
            if self._refreshed < self._allowed:
                return not self._is_over
        self._flush()
        with self._changed:
            self._changed.wait_for(lambda: self._ends or self._refreshed < self._allowed)
            self._account.forget()
            self._since_s = self._clock()
            return not self._ends

    def _turn(self) -> None:
        """Compute one ticket, or learn that all is done."""
        first, *others = self._servers
        asked = Asked(worker=self._worker, clock=self._ticket_clock, steps=self._allowed)
        num_bytes = first.request(asked, self._pending)
        self._wait()
        answer = first.take()
        self.note_steps(answer.steps_done)
        if answer.ticket == NO_TICKET:
            self._refresh(others, answer.steps_done)
            return
        step = self._tickets.step(answer.ticket)
        self._account.sent(step, num_bytes)
        self._computing.prepare(answer.ticket)
        pulled = Pulled(worker=self._worker, clock=self._ticket_clock, ticket=answer.ticket)
        self._account.sent(step, sum(other.request(pulled, self._pending) for other in others))
        self._wait()
        versions = [answer.version, *(other.take().version for other in others)]
        weight = self._tickets.weight(answer.ticket)
        if weight:
            self._computing.compute(answer.ticket)
        self._push(answer.ticket, weight, versions)

    def _push(self, ticket: int, weight: float, versions: list[int]) -> None:
        begin_s = self._clock()
        for server, version in zip(self._servers, versions, strict=True):
            pushed = Pushed(worker=self._worker, ticket=ticket, version=version, weight=weight)
            self._account.sent(self._tickets.step(ticket), server.request(pushed, self._pending))
        self._ticket_clock += 1
        self._account.spent("communication_s", self._clock() - begin_s)

    def _refresh(self, others: Sequence[ServerEnd], steps: int) -> None:
        """Take what everybody holds after the last step that was allowed."""
        for other in others:
            other.request(Refreshed(worker=self._worker, steps=steps), self._pending)
        self._wait()
        for other in others:
            other.take()
        with self._changed:
            self._refreshed = steps
            self._changed.notify_all()

    def _wait(self) -> None:
        begin_s = self._clock()
        if not self._pending.wait(FLUSH_S):
            self._flush()
            self._pending.wait()
        self._account.waited(begin_s, self._clock())
