"""Matches the messages of one peer with the receives posted for them, whichever comes first."""

import threading
from dataclasses import dataclass

from nfold.errors import InternalError, TransportError
from nfold.transport.protocol import Done
from nfold.transport.tags import generation_of, without_generation

MAX_EARLY_BYTES = 1 << 31
"""The longest message that is kept before its receive is posted: a garbled length must not cost terabytes."""


@dataclass(slots=True)
class Posted:
    """A receive that waits for its message."""

    into: memoryview
    done: Done


@dataclass(slots=True)
class Arrival:
    """A message on its way in."""

    tag: int
    buffer: memoryview
    """Where its bytes go: the posted memory, or our own until a receive is posted."""
    posted: Posted | None
    complete: bool = False


class Inbox:
    """The receives and messages of one peer.

    One thread brings messages (`begin`, fill the buffer, `finish`); any thread posts receives. `done` is called
    without the lock: by the bringing thread, or inside `post` when the message is already there.
    """

    def __init__(self, max_early_bytes: int = MAX_EARLY_BYTES) -> None:
        self._lock, self._copying = threading.Lock(), threading.Lock()
        self._posted: dict[int, Posted] = {}
        self._early: dict[int, Arrival] = {}
        self._max_early_bytes = max_early_bytes
        self._departed = False
        self._generation = 0
        """Messages of earlier ones are thrown away."""

    def post(self, tag: int, into: memoryview, done: Done) -> None:
        """Ask for a message, whose bytes go to `into`; `done` is called when they are there.

        Raises:
            TransportError: it has another length, or its sender has said goodbye.
            InternalError: a receive with this tag waits already.
        """
        posted = Posted(into, done)
        with self._lock:
            if self.is_stale(tag):
                return
            arrival = self._early.get(tag)
            if arrival is None:
                self._wait(tag, posted)
                return
            self._claim(arrival, posted)
            if not arrival.complete:
                return
            del self._early[tag]
        self._hand_over(arrival)

    def begin(self, tag: int, length: int) -> Arrival:
        """Take note that a message of `length` bytes comes; the arrival says where they go.

        Raises:
            TransportError: its length is not the posted one, it is too long to keep, or its tag is used twice.
        """
        with self._lock:
            posted = self._posted.pop(tag, None)
            if posted is not None:
                _check_length(tag, length, len(posted.into))
                return Arrival(tag, posted.into, posted)
            self._check_early(tag, length)
            arrival = Arrival(tag, memoryview(bytearray(length)), None)
            if not self.is_stale(tag):
                self._early[tag] = arrival
            return arrival

    def finish(self, arrival: Arrival) -> None:
        """Take note that a message's bytes are all there."""
        with self._lock:
            arrival.complete = True
            if arrival.posted is None or self.is_stale(arrival.tag):
                return
            self._early.pop(arrival.tag, None)
        self._hand_over(arrival)

    def forget_before(self, generation: int) -> None:
        """Throw away all receives and messages of earlier generations: those that wait, and those still to come.

        Nothing is copied to their memory any more. What arrives there directly is the concern of who brings it.
        """
        with self._lock:
            self._generation = max(self._generation, generation)
            self._posted = {tag: posted for tag, posted in self._posted.items() if not self.is_stale(tag)}
            self._early = {tag: arrival for tag, arrival in self._early.items() if not self.is_stale(tag)}
        with self._copying:  # whoever copied has ended, and who comes next sees that it is stale
            pass

    def depart(self) -> int:
        """Take no new messages, and return how many receives will wait in vain."""
        with self._lock:
            self._departed = True
            return len(self._posted)

    def is_stale(self, tag: int) -> bool:
        """Whether it is of a generation that is over."""
        return generation_of(tag) < self._generation

    def _wait(self, tag: int, posted: Posted) -> None:
        if tag in self._posted:
            raise _twice(tag)
        if self._departed:
            raise TransportError(
                f"it said goodbye before it sent the {len(posted.into)} bytes with tag {without_generation(tag)}"
            )
        self._posted[tag] = posted

    def _hand_over(self, arrival: Arrival) -> None:
        """Put a complete message where its receive wants it. The memory is the same if the receive came first."""
        assert arrival.posted is not None
        if arrival.buffer is not arrival.posted.into:
            with self._copying:
                if self.is_stale(arrival.tag):
                    return
                arrival.posted.into[:] = arrival.buffer
        arrival.posted.done()

    def _claim(self, arrival: Arrival, posted: Posted) -> None:
        if arrival.posted is not None:
            raise _twice(arrival.tag)
        _check_length(arrival.tag, len(arrival.buffer), len(posted.into))
        arrival.posted = posted

    def _check_early(self, tag: int, length: int) -> None:
        if tag in self._early:
            raise TransportError(f"it sent tag {without_generation(tag)} twice")
        if length > self._max_early_bytes:
            raise TransportError(
                f"it sent {length} bytes with tag {without_generation(tag)}, for which no receive is posted; "
                f"at most {self._max_early_bytes} bytes are kept unasked"
            )


def _twice(tag: int) -> InternalError:
    return InternalError(
        f"two receives wait for tag {without_generation(tag)} of one peer: a tag is used once per direction"
    )


def _check_length(tag: int, length: int, expected: int) -> None:
    if length != expected:
        sent = f"it sent {length} bytes with tag {without_generation(tag)}"
        raise TransportError(f"{sent}, where {expected} bytes are expected")
