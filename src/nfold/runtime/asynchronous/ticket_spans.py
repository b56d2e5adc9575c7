"""What one rank of an asynchronous run did and when, kept by the step whose ticket it was done for.

    worker   ask T        SEND   the request            server   RECV   comes, and may be held
             values T     RECV   from its header on              SEND   the answer
             LOAD F B            the ticket
             gradient T   SEND   header and parts                RECV   from its header on
                                                                 UPDATE

Header and parts of a message are one span. A header comes right before its parts, so unlike one of a synchronous step a
receive begins when bytes began to come, and both of its ends know how many they are. What a rank asks itself is noted
without bytes: it may be held like any other request.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from nfold.core.tasks import Purpose
from nfold.core.trace import Span
from nfold.runtime.asynchronous.tickets import Tickets

What = Literal["ask", "values", "gradient"]

_PURPOSES: dict[What, Purpose] = {"ask": "pull", "values": "pull", "gradient": "push"}


class TicketSpans:
    """The spans of one rank. The threads that compute, serve and move bytes all add to it."""

    def __init__(self, rank: int, steps: range, tickets: Tickets, clock: Callable[[], float]) -> None:
        """Begin.

        Args:
            rank: whose.
            steps: that are traced; what is done for others is not kept.
            tickets: what they stand for.
            clock: seconds.
        """
        self._rank, self._steps, self._tickets, self.clock = rank, steps, tickets, clock
        self._lock = threading.Lock()
        self._spans: dict[int, list[Span]] = defaultdict(list)

    def trace(self, steps: range) -> None:
        """Trace these steps from now on, and no others."""
        self._steps = steps

    def keeps(self, ticket: int) -> bool:
        """Whether a ticket belongs to a step that is traced."""
        return self._tickets.step(ticket) in self._steps

    def sent(self, what: What, ticket: int, peer: int, num_bytes: int, start_s: float, end_s: float) -> None:
        """Note a message from when it could start until its bytes had gone."""
        self._message("SEND", what, f"{what} {ticket} to {peer}", ticket, peer, num_bytes, start_s, end_s)

    def received(self, what: What, ticket: int, peer: int, num_bytes: int, start_s: float, end_s: float) -> None:
        """Note a message from when its bytes began to come until all had come."""
        self._message("RECV", what, f"{what} {ticket} from {peer}", ticket, peer, num_bytes, start_s, end_s)

    def updated(self, ticket: int, start_s: float, end_s: float) -> None:
        """Note that a gradient was applied."""
        name = f"update {ticket}"
        self._add(ticket, Span(rank=self._rank, kind="UPDATE", name=name, start_s=start_s, end_s=end_s))

    def computed(self, ticket: int, spans: Iterable[Span], begin_s: float) -> None:
        """Add the spans that an engine recorded, which count from `begin_s`."""
        for span in spans:
            moved = replace(span, rank=self._rank, start_s=span.start_s + begin_s, end_s=span.end_s + begin_s)
            self._add(ticket, moved)

    def take(self, step: int, begin_s: float) -> tuple[Span, ...]:
        """Return the spans of a step, in seconds since it began; those that still go on are left out."""
        with self._lock:
            spans = self._spans.pop(step, [])
        return tuple(replace(span, start_s=span.start_s - begin_s, end_s=span.end_s - begin_s) for span in spans)

    def _message(
        self,
        kind: Literal["SEND", "RECV"],
        what: What,
        name: str,
        ticket: int,
        peer: int,
        num_bytes: int,
        start_s: float,
        end_s: float,
    ) -> None:
        span = Span(
            rank=self._rank,
            kind=kind,
            name=name,
            start_s=start_s,
            end_s=end_s,
            purpose=_PURPOSES[what],
            peer=peer,
            payload_bytes=num_bytes,
        )
        self._add(ticket, span)

    def _add(self, ticket: int, span: Span) -> None:
        step = self._tickets.step(ticket)
        if step in self._steps:
            with self._lock:
                self._spans[step].append(span)
