"""What a worker and a shard say to each other: fixed headers, and the bytes of gradients and values beside them.

    worker                                       shard
    request n   what, number, number     -->
    gradients n, one message a part      -->     (behind a push that has something to add)
                                         <--     reply n   ticket, version, steps done
                                         <--     values n, one message a part

A worker's requests are numbered, and number n has its own tags, so that either side may post receives ahead. Only one
request of a worker waits for its reply at any time, so a window of tags is enough.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from nfold.errors import TransportError
from nfold.planning.asynchronous.staleness import REPLY_BYTES, REQUEST_BYTES, Answer, Asked, Pulled, Pushed, Refreshed
from nfold.transport.tags import Use, tag_of

WINDOW = 64
"""Requests before a tag is used again."""
_HEADER = struct.Struct("!qqq")
_ASKED, _PULLED, _REFRESHED, _PUSHED, _BYE = range(5)

assert _HEADER.size == REQUEST_BYTES == REPLY_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class NoMoreRequests:
    """A worker says that it will ask for nothing more."""

    worker: int


Request = Asked | Pulled | Refreshed | Pushed | NoMoreRequests


@dataclass(frozen=True, slots=True)
class Tags:
    """The message tags of one worker's conversation with one shard."""

    num_parts: int
    """At most so many messages of gradients, or of values, go with a header, to any shard."""

    def request(self, number: int) -> int:
        """Return the tag of a request's header."""
        return tag_of(Use.SERVICE, number % WINDOW * (2 + 2 * self.num_parts))

    def reply(self, number: int) -> int:
        """Return the tag of a reply's header."""
        return self.request(number) + 1

    def gradient(self, number: int, part: int) -> int:
        """Return the tag of one part of a gradient."""
        return self.request(number) + 2 + part

    def value(self, number: int, part: int) -> int:
        """Return the tag of one part of the values."""
        return self.request(number) + 2 + self.num_parts + part


def encode_request(request: Request) -> bytes:
    """Return the header of a request."""
    if isinstance(request, Asked):
        return _HEADER.pack(_ASKED, request.clock, request.steps)
    if isinstance(request, Pulled):
        return _HEADER.pack(_PULLED, request.clock, request.ticket)
    if isinstance(request, Refreshed):
        return _HEADER.pack(_REFRESHED, request.steps, 0)
    if isinstance(request, Pushed):
        return _HEADER.pack(_PUSHED, request.ticket, request.version)
    return _HEADER.pack(_BYE, 0, 0)


def decode_request(worker: int, header: bytes | bytearray, weight: Callable[[int], float]) -> Request:
    """Return what a worker asks for.

    Args:
        worker: who sent it.
        header: its bytes.
        weight: of a ticket: its samples over those of its step. Both sides know it.

    Raises:
        TransportError: these are no request's bytes.
    """
    what, first, second = _HEADER.unpack(header)
    if what == _ASKED:
        return Asked(worker=worker, clock=first, steps=second)
    if what == _PULLED:
        return Pulled(worker=worker, clock=first, ticket=second)
    if what == _REFRESHED:
        return Refreshed(worker=worker, steps=first)
    if what == _PUSHED:
        return Pushed(worker=worker, ticket=first, version=second, weight=weight(first))
    if what == _BYE:
        return NoMoreRequests(worker=worker)
    raise TransportError(f"worker {worker} sent a request of kind {what}, which does not exist")


def encode_reply(answer: Answer) -> bytes:
    """Return the header of a reply."""
    return _HEADER.pack(answer.ticket, answer.version, answer.steps_done)


def decode_reply(worker: int, header: bytes | bytearray) -> Answer:
    """Return the answer that a reply's header describes."""
    ticket, version, steps_done = _HEADER.unpack(header)
    return Answer(worker=worker, ticket=ticket, version=version, steps_done=steps_done)
