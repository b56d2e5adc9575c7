"""A process's connections to others, which outlive the generations that use them.

    Connections            ways by member; add, leave, begin, close, abort
        begin(2, (5, 0, 7))
            GenerationTransport 2      this process is a rank among three; ways by rank

A member is a process that takes part in a job; its number is never used again. Which rank it has, a generation says.
"""

import abc
import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

from nfold.errors import InternalError, TransportError
from nfold.transport.generations.generation_transport import GenerationTransport
from nfold.transport.protocol import Way
from nfold.transport.tags import MOST_GENERATIONS

AnyWay = TypeVar("AnyWay", bound=Way)


class Connections(abc.ABC, Generic[AnyWay]):
    """The ways from one member to others."""

    def __init__(self, member: int) -> None:
        """Args:
        member: this process.
        """
        self.member = member
        self._lock = threading.Lock()
        self._ways: dict[int, AnyWay] = {}
        self._lost: dict[int, str] = {}
        self._current: GenerationTransport | None = None
        self._ranks: dict[int, int] = {}
        self._beside: tuple[GenerationTransport, dict[int, int]] | None = None

    @property
    def peers(self) -> frozenset[int]:
        """Return the members that a way leads to, lost ones too."""
        return frozenset(self._ways)

    @property
    def lost(self) -> frozenset[int]:
        """Return the members whose way carries nothing any more."""
        with self._lock:
            return frozenset(self._lost)

    def silent_s(self) -> dict[int, float]:
        """Return for how long each member's machine has given no sign of life."""
        return {peer: way.silent_s() for peer, way in list(self._ways.items())}

    @abc.abstractmethod
    def leave(self, peer: int) -> None:
        """Say goodbye to a member and close the way to it. No generation under way may have a rank there."""

    @abc.abstractmethod
    def close(self) -> None:
        """Send what is queued, say goodbye, and let go of connections and threads."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Leave at once: all peers see this member as lost."""

    def abandon(self) -> None:
        """Let all that waits for a peer in the generation under way fail: it is over, though the members live."""
        with self._lock:
            current, ranks = self._current, dict(self._ranks)
        for member, rank in ranks.items():
            if current is not None and member != self.member:
                current.lose(rank, "the generation was ended")

    def begin(self, number: int, members: Sequence[int]) -> GenerationTransport:
        """Begin a generation. What comes from an earlier one is thrown away from now on; what came early is kept.

        Once this returns, nothing is written any more to the memory of an earlier generation's receives.

        Args:
            number: of the generation, larger than that of the one before.
            members: by rank; this process is one of them.

        Raises:
            InternalError: the number is no larger, or no way leads to one of the members.
        """
        self.end_beside()
        begun, ranks = self._transport(number, members)
        with self._lock:
            before, self._current, self._ranks = self._current, begun, ranks
        if before is not None:
            before.end()
        for way in list(self._ways.values()):  # threads of one process join whenever they come
            way.forget_before(number)
        self._divert()
        self._tell_lost(begun, ranks)
        return begun

    def beside(self, number: int, members: Sequence[int]) -> GenerationTransport:
        """Return a transport between some members for what they say beside the generation under way, which goes on.

        Args:
            number: later than that of all generations that have begun, earlier than that of those which follow.
            members: by rank in it; this process is one of them.

        Raises:
            InternalError: the number is no later, or no way leads to one of the members.
            TransportError: something later has begun beside the generation.
        """
        begun, ranks = self._transport(number, members)
        with self._lock:
            before = self._beside
            if before is not None and before[0].number > number:
                raise TransportError(f"{number} is over: {before[0].number} has begun beside the generation")
            self._beside = begun, ranks
        _end(before)
        self._tell_lost(begun, ranks)
        return begun

    def end_beside(self, only: GenerationTransport | None = None) -> None:
        """Let what waits for a peer beside the generation under way fail, and end that.

        Args:
            only: end nothing else, which somebody else may have begun meanwhile; None: end whatever there is.
        """
        with self._lock:
            beside = self._beside
            if beside is None or only not in (None, beside[0]):
                return
            self._beside = None
        _end(beside)

    def _transport(self, number: int, members: Sequence[int]) -> tuple[GenerationTransport, dict[int, int]]:
        self._check(number, members)
        ranks = {member: rank for rank, member in enumerate(members)}
        ways = {ranks[member]: self._ways[member] for member in members if member != self.member}
        return GenerationTransport(number, ranks[self.member], ways), ranks

    def _tell_lost(self, begun: GenerationTransport, ranks: dict[int, int]) -> None:
        with self._lock:
            lost = {ranks[member]: why for member, why in self._lost.items() if member in ranks}
        for rank, why in lost.items():
            begun.lose(rank, why)

    def _divert(self) -> None:
        """Return once messages that were thrown away arrive nowhere, not even the rest of one that is half read."""

    def _check(self, number: int, members: Sequence[int]) -> None:
        if not (-1 if self._current is None else self._current.number) < number < MOST_GENERATIONS:
            raise InternalError(f"generation {number} cannot begin: it is not later than the one before, or too late")
        if missing := set(members) - set(self._ways) - {self.member}:
            raise InternalError(f"member {self.member} has no connection to member {min(missing)}")
        if self.member not in members:
            raise InternalError(f"member {self.member} has no rank in generation {number}")

    def _add(self, peer: int, way: AnyWay) -> None:
        """Let a way lead to a member. Of earlier generations it never hears anything."""
        self._ways[peer] = way
        if self._current is not None:
            way.forget_before(self._current.number)

    def _drop(self, peer: int) -> AnyWay:
        """Forget a member, lost or not; return the way that leads to it, which is to be closed."""
        with self._lock:
            self._lost.pop(peer, None)
        return self._ways.pop(peer)

    def _lose(self, peer: int, why: str) -> None:
        """Take note that a member is lost, and tell the generation under way if it has a rank there."""
        with self._lock:
            self._lost.setdefault(peer, why)
            current, rank, beside = self._current, self._ranks.get(peer), self._beside
        if current is not None and rank is not None:
            current.lose(rank, why)
        if beside is not None and peer in beside[1]:
            beside[0].lose(beside[1][peer], why)

    def _silence(self) -> None:
        """Report nothing more: this process leaves."""
        if self._current is not None:
            self._current.silence()


def _end(beside: tuple[GenerationTransport, dict[int, int]] | None) -> None:
    if beside is not None:
        transport, ranks = beside
        for rank in set(ranks.values()) - {transport.rank}:
            transport.lose(rank, "it is over")
        transport.end()
