"""Decides for one shard of an asynchronous parameter server: which gradient is applied how, who gets values when.

Pure: events in, commands out. The runtime performs the commands with tensors and messages, the planner in virtual
time.

A step's batch is cut into one slice per worker. A **ticket** is the right to compute one slice: ticket t is slice
t mod n of step t div n, for n workers. One shard hands tickets out in order, so every sample is taken once and a fast
worker takes more. A worker's **clock** counts the tickets that it has finished.

    worker            shard
    Asked        -->            wants a ticket, and values to compute it with
                 <--  Answer    the ticket and the values, once both may be had
    Pulled       -->            has a ticket from another shard: wants this shard's values
                 <--  Answer
    Pushed       -->  Apply     its gradient; how many updates the shard made since the values: the staleness

Stale synchronous parallel (Ho et al. 2013): with bound s no worker begins a ticket while it is more than s ahead of the
slowest, and what it reads holds every update up to s clocks ago. No bound: fully asynchronous. With s = 0 the gradients
of a round are applied as one, so the result is the synchronous one for every optimizer.

All come to rest where a checkpoint is taken or the model is evaluated: a worker is told so when all that it may begin
is applied, and takes the values of that moment. Nobody begins anything after a rest before everybody has risen from it,
so that no rank's state is of another moment.
"""

from collections import Counter
from dataclasses import dataclass

from nfold.errors import InternalError

NO_TICKET = -1
REQUEST_BYTES = REPLY_BYTES = 24
"""What a request and the head of an answer take on the wire."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A worker asks for a ticket."""

    worker: int
    clock: int
    steps: int
    """Steps that its rank may begin: it rests when they are done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulled:
    """A worker asks for the values to compute a ticket with."""

    worker: int
    clock: int
    ticket: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Refreshed:
    """A worker asks for the values after a number of steps, so that all hold the same while nothing is trained."""

    worker: int
    steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Pushed:
    """A worker's gradient has arrived."""

    worker: int
    ticket: int
    version: int
    """Of the values that it was computed with."""
    weight: float
    """Its samples over those of its step; 0: there was nothing to compute, and no gradient came."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """Steps before this one may begin."""

    steps: int


Event = Asked | Pulled | Refreshed | Pushed | Allowed


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Send a worker the current values."""

    worker: int
    ticket: int
    """NO_TICKET: all that the worker may begin is applied."""
    version: int
    steps_done: int


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdatePart:
    """One gradient of an update, and its weight in it."""

    worker: int
    ticket: int
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Apply:
    """Let the optimizer take one step with the weighted sum of gradients."""

    parts: tuple[UpdatePart, ...]
    rate: float
    """What the learning rate is multiplied by."""


Command = Answer | Apply


class Shard:
    """The rules of one shard. All shards follow the same; the one that is asked for tickets hands them out."""

    def __init__(self, workers: int, *, bound: int | None, staleness_aware: bool, first_step: int = 0) -> None:
        """Begin.

        Args:
            workers: how many compute; also the slices of a step.
            bound: how far a worker may be ahead of the slowest; None: any distance.
            staleness_aware: divide the learning rate by the staleness (Zhang et al. 2015). It is counted in steps,
                because one gradient of n makes an nth of a step: ordinary staleness is below 1 and costs nothing.
            first_step: where training goes on.
        """
        self._workers, self._bound, self._aware = workers, bound, staleness_aware
        self._clocks = [0] * workers
        self._waiting: list[Asked | Pulled | Refreshed] = []
        self._round: list[Pushed] = []
        self._received: Counter[int] = Counter()
        self._next_ticket = first_step * workers
        self.allowed = first_step
        """Steps before this one may be begun."""
        self._rest = first_step
        """Steps that were done when all rested last."""
        self._risen = set(range(workers))
        """Workers that have asked for more than that since."""
        self.version = 0
        self.steps_done = first_step
        self.histogram: Counter[int] = Counter()
        """Gradients by staleness: updates made since the values that they were computed with."""

    def handle(self, event: Event) -> list[Command]:
        """Take in an event and return what to do, in this order."""
        commands: list[Command] = []
        if isinstance(event, Pushed):
            commands += self._push(event)
        elif isinstance(event, Allowed):
            self._allow(event.steps)
        else:
            self._waiting.append(event)
            if isinstance(event, Asked) and event.steps > self._rest:
                self._risen.add(event.worker)
        return commands + self._answers()

    def validate(self) -> None:
        """Check what must always hold.

        Raises:
            InternalError: it does not.
        """
        spread = max(self._clocks) - min(self._clocks)
        if self._bound is not None and spread > self._bound + 1:
            raise InternalError(f"clocks {self._clocks} are further apart than the bound {self._bound} allows")
        if self._next_ticket > self.allowed * self._workers:
            raise InternalError(f"ticket {self._next_ticket - 1} lies beyond the {self.allowed} steps that are allowed")

    def _allow(self, steps: int) -> None:
        if self.steps_done == self.allowed and steps > self.allowed > self._rest:
            self._rest = self.allowed
            asking = [request for request in self._waiting if isinstance(request, Asked)]
            self._risen = {request.worker for request in asking if request.steps > self._rest}
        self.allowed = max(self.allowed, steps)

    # Gradients

    def _push(self, pushed: Pushed) -> list[Command]:
        self._clocks[pushed.worker] += 1
        self._received[pushed.ticket // self._workers] += 1
        commands = self._gather(pushed) if self._bound == 0 else self._apply(pushed)
        while self._received[self.steps_done] == self._workers:
            del self._received[self.steps_done]
            self.steps_done += 1
        return commands

    def _apply(self, pushed: Pushed) -> list[Command]:
        if pushed.weight == 0:
            return []
        staleness = self._note(pushed)
        self.version += 1
        rate = pushed.weight / max(1.0, staleness / self._workers) if self._aware else pushed.weight
        return [Apply(parts=(UpdatePart(worker=pushed.worker, ticket=pushed.ticket, weight=1.0),), rate=rate)]

    def _gather(self, pushed: Pushed) -> list[Command]:
        """Wait for everybody's gradient of the round, then apply their mean, added up in the order of the slices."""
        self._round.append(pushed)
        if len(self._round) < self._workers:
            return []
        whole = sorted((each for each in self._round if each.weight), key=lambda each: each.ticket)
        for each in whole:
            self._note(each)
        self._round = []
        self.version += 1
        parts = tuple(UpdatePart(worker=each.worker, ticket=each.ticket, weight=each.weight) for each in whole)
        return [Apply(parts=parts, rate=1.0)]

    def _note(self, pushed: Pushed) -> int:
        staleness = self.version - pushed.version
        self.histogram[staleness] += 1
        return staleness

    # Values

    def _answers(self) -> list[Command]:
        """Answer whoever may go on, first come first served."""
        answers: list[Command] = []
        left: list[Asked | Pulled | Refreshed] = []
        for request in self._waiting:
            ticket = self._decide(request)
            if ticket is None:
                left.append(request)
            else:
                answers.append(
                    Answer(worker=request.worker, ticket=ticket, version=self.version, steps_done=self.steps_done)
                )
        self._waiting = left
        return answers

    def _decide(self, request: Asked | Pulled | Refreshed) -> int | None:
        """Return the ticket that goes with the answer, or None while there can be no answer."""
        if isinstance(request, Refreshed):
            return NO_TICKET if self.steps_done >= request.steps else None
        if isinstance(request, Pulled):
            return request.ticket if self._may_read(request.worker, request.clock) else None
        if self.steps_done >= request.steps:
            return NO_TICKET
        is_left = self._next_ticket < min(self.allowed, request.steps) * self._workers
        everybody = len(self._risen) == self._workers
        if not (is_left and everybody and self._may_read(request.worker, request.clock)):
            return None
        self._next_ticket += 1
        return self._next_ticket - 1

    def _may_read(self, worker: int, clock: int) -> bool:
        """Whether the worker's own last gradient is in, and everybody's that the bound asks for."""
        if self._clocks[worker] < clock:
            return False
        return self._bound is None or clock - min(self._clocks) <= self._bound
