"""Who takes part in a job, and what follows when somebody comes or goes. Pure: events in, a decision out.

    came ──> prepared ──> a rank, from the next generation on ──> finished ──> left
      └─ refused or failed ──> left                 └─ left before it has finished: the job fails

A member is prepared when it has loaded the same program as the others and listens. Who has announced that it wants to
leave, or has only just prepared, waits for the end of the generation under way.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum, auto

from nfold.core.cluster import Node
from nfold.core.members import Address, Generation, Member
from nfold.errors import InternalError
from nfold.runtime.coordinator.members.histories import Histories


@dataclass(frozen=True, slots=True)
class MemberCame:
    """A member has connected."""

    member: Member


@dataclass(frozen=True, slots=True)
class MemberPrepared:
    """A member has loaded the program and listens, so it can become a rank."""

    number: int
    address: Address
    seen: str = ""
    """The host that it dials from, as the coordinator sees it; empty: not known."""


@dataclass(frozen=True, slots=True)
class MemberAnnounced:
    """A member is to leave as soon as the others can go on without it."""

    number: int


@dataclass(frozen=True, slots=True)
class MemberDelivered:
    """A member has given all that the run ends with: that it leaves is no failure, as long as no other one is lost."""

    number: int


@dataclass(frozen=True, slots=True)
class MemberFinished:
    """A member has nothing more to do, or was refused: that it leaves is no failure."""

    number: int


@dataclass(frozen=True, slots=True)
class MemberFailed:
    """A member has said that it cannot go on, or shows no sign of life, or is cut off from others."""

    number: int


@dataclass(frozen=True, slots=True)
class MemberLeft:
    """A member's connection has ended."""

    number: int
    comes_again: bool = False
    """Whether its host is there still, and is to have another member."""


MemberEvent = (
    MemberCame | MemberPrepared | MemberAnnounced | MemberDelivered | MemberFinished | MemberFailed | MemberLeft
)


class Decision(Enum):
    """What the coordinator is to do, as follows from the members."""

    GO_ON = auto()
    GROW = auto()
    """The next generation begins with newcomers."""
    SHRINK = auto()
    """The next generation begins without some, and perhaps with newcomers."""
    STOP = auto()
    """Too few would stay, or not all that it takes, where ranks want to leave: the run is kept and ends."""
    FAIL = auto()
    """A rank is lost."""


class Membership:
    """The members of one job.

    Attributes:
        ranks: numbers of members, by rank. The first ones make the generation under way; the others rest.
        generation: under way; None: there was none yet.
        histories: what is known of why hosts came and went.
        fixed: why nobody gets a rank any more, nor can leave before the end; empty: members come and go.
        spares: newcomers that would make steps longer, with the ranks for which that was found.
    """

    def __init__(self, least: int = 1, *, waits: bool = False, returns: bool = False) -> None:
        """Args:
        least: the fewest ranks that the job trains on.
        waits: whether fewer ranks keep what they have learnt, and wait for others.
        returns: whether they wait for hosts that have lost their rank alone.
        """
        self._least, self._fewest, self._num_reserved = least, 1 if waits else least, 0
        self._waits, self._returns = waits, returns
        self._num_spared = 0
        """Ranks that left because a plan had no use for them, since there were enough the last time."""
        self.spares: dict[int, tuple[int, ...]] = {}
        self._may_return: set[str] = set()
        """Hosts with a rank that would have another one if that were lost."""
        self._returning: set[str] = set()
        """Hosts that have lost their rank and will have another one."""
        self._counts_on_returning = False
        """Whether ranks ever went on although they were too few, since such a host was to come."""
        self._nodes: dict[int, Node] = {}
        self._started: dict[int, str] = {}
        """Members that have not said hello, and on which host they were started."""
        self.histories = Histories()
        self.ranks: tuple[int, ...] = ()
        self.generation: Generation | None = None
        self._members: dict[int, Member] = {}
        self._announced: set[int] = set()
        self._delivered: set[int] = set()
        self._dismissed: set[int] = set()
        """Members that were told to leave: however they do, it is no failure."""
        self._finished: set[int] = set()
        self._left: set[int] = set()
        self._failed: set[int] = set()
        self._indispensable: dict[int, str] = {}
        self.fixed = ""

    def take(self, event: MemberEvent) -> Decision:
        """Take in what a member did.

        Raises:
            InternalError: a number came twice, or never came.
        """
        if isinstance(event, MemberCame):
            self._admit(event.member)
            return self.decision
        member, was_gone = self.member(event.number), event.number in self.gone
        match event:
            case MemberPrepared():
                self._members[event.number] = replace(member, address=event.address, seen=event.seen)
            case MemberAnnounced():
                self._announced.add(event.number)
            case MemberDelivered():
                self._delivered.add(event.number)
            case MemberFinished():
                self._finished.add(event.number)
            case MemberFailed():
                is_over = event.number in self._dismissed | self._delivered
                (self._finished if is_over else self._failed).add(event.number)
            case MemberLeft():
                self._left.add(event.number)
                self._finished |= {event.number} & (self._dismissed | self._delivered)
                self._may_return.discard(member.host)
                if event.comes_again and self._returns and event.number in self.awaited:
                    self._returning.add(member.host)
        if event.number in self.gone and not (was_gone or event.number in self.ranks):
            self.miss(member.host)
        return self.decision

    @property
    def decision(self) -> Decision:
        """What follows from all events so far."""
        if any(number in self._failed or number in self._left - self._finished for number in self.ranks):
            return Decision.FAIL
        if self.generation is None or self.fixed or not self.awaited:
            return Decision.GO_ON
        if self.leavers:
            can_shrink = len(self.next_ranks) >= self._bound() and not self._indispensable.keys() & set(self.leavers)
            return Decision.SHRINK if can_shrink else Decision.STOP
        return Decision.GROW if self.newcomers else Decision.GO_ON

    @property
    def num_lacking(self) -> int:
        """How many members more it takes to train; 0: enough are there, those among them that plans have no use for.

        Who is still made ready does not count, unless nobody gets a rank any more.
        """
        plans = (self.ranks, self.stayers)
        there = [each for each in self.newcomers if self.fixed or self.spares.get(each) in plans]
        here = len(self.ranks) + len(there) + self._num_spared
        return max(0, self._least - here) if self._waits or self._counts_on_returning else 0

    @property
    def returning(self) -> tuple[str, ...]:
        """Hosts that have lost their rank, are there still, and have no other rank yet."""
        return tuple(sorted(self._returning))

    @property
    def others_can_come(self) -> bool:
        """Whether ranks that are too few may wait for others."""
        is_under_way = self._counts_on_returning and bool(self.coming or self._started)
        return self._waits or bool(self._returning) or is_under_way

    @property
    def others_could_come(self) -> bool:
        """Whether that is so, or was before: a host that was to come again may go in any moment."""
        return self._waits or self._counts_on_returning

    @property
    def awaited(self) -> frozenset[int]:
        """Members with a rank that have not finished."""
        return frozenset(self.ranks) - self._finished

    @property
    def leavers(self) -> tuple[int, ...]:
        """Members with a rank that want to leave."""
        return tuple(number for number in self.ranks if number in self.awaited & self._announced)

    @property
    def stayers(self) -> tuple[int, ...]:
        """Members with a rank that do not want to leave."""
        leavers = self.leavers
        return tuple(number for number in self.ranks if number not in leavers)

    @property
    def newcomers(self) -> tuple[int, ...]:
        """Members that are prepared and have no rank yet."""
        return tuple(
            number
            for number, member in self._members.items()
            if member.address is not None and self._is_here(number) and number not in self.ranks
        )

    @property
    def coming(self) -> tuple[int, ...]:
        """Members without a rank that are still there, prepared or not."""
        here = self._members.keys() - self.ranks - self._left - self._finished - self._failed
        return tuple(number for number in self._members if number in here)

    @property
    def next_ranks(self) -> tuple[int, ...]:
        """The members of the next generation, in the order of their ranks: those who stay, then newcomers."""
        return (*(number for number in self.ranks if self._is_here(number)), *self.newcomers)

    @property
    def gone(self) -> tuple[int, ...]:
        """The members that have left or are about to, and that will never have a rank again."""
        return tuple(sorted(self._left | self._finished | self._failed))

    def settle(self, number: int, node: Node, why: str, launched_at: float | None) -> None:
        """Note on which host a member was started that came after the job began; see `Histories.came`."""
        self._nodes[number], self._started[number] = node, node.name
        self.histories.came(node.name, why, launched_at)

    def miss(self, host: str) -> None:
        """Note that a host does not come again, if anybody has thought so."""
        self._returning.discard(host)
        self._may_return.discard(host)
        self._started = {number: where for number, where in self._started.items() if where != host}

    def note_places(self, numbers: Collection[int]) -> None:
        """Note whose hosts would have other members by now if these were lost."""
        there = numbers if self._returns else ()
        self._may_return = {self._members[number].host for number in there if number in self.ranks}

    def node(self, number: int) -> Node | None:
        """Return the host of a member that was started on one which came later; None: of all others."""
        return self._nodes.get(number)

    def member(self, number: int) -> Member:
        """Return a member.

        Raises:
            InternalError: nobody came with that number.
        """
        if number not in self._members:
            raise InternalError(f"member {number} is not known: it has never said hello")
        return self._members[number]

    def rank_of(self, number: int) -> int | None:
        """Return a member's rank; None: it has none."""
        return self.ranks.index(number) if number in self.ranks else None

    def knows(self, number: int) -> bool:
        """Whether a member of this number has ever connected."""
        return number in self._members

    def fix(self, why: str) -> None:
        """Give nobody a rank any more, and let no rank leave before the end, for the reason `why`."""
        self.fixed = why

    def need(self, number: int, why: str) -> None:
        """Let the run be kept and end if a member is to leave, for the reason `why`."""
        self._indispensable[number] = why

    def needed(self, number: int) -> str:
        """Return why the run cannot go on without a member; empty: it can."""
        return self._indispensable.get(number, "")

    def enlist(self, numbers: tuple[int, ...]) -> None:
        """Give ranks to members, in this order; all others lose theirs.

        Raises:
            InternalError: one of them is not there, or who loses its rank has not finished.
        """
        for number in numbers:
            self.member(number)
            if number in self._left | self._finished | self._failed:
                raise InternalError(f"member {number} has left, and cannot be a rank")
        if lost := self.awaited - set(numbers):
            raise InternalError(f"member {min(lost)} has a rank and has not finished: it cannot lose it")
        self.ranks = numbers
        self._returning.difference_update(self._members[number].host for number in numbers)

    def addressed(self, ranks: Collection[int], *, is_last: bool) -> tuple[int, ...]:
        """Return the members that an order to ranks is for.

        Args:
            ranks: of this generation.
            is_last: whether it tells them to leave: however they do, it is no failure.
        """
        members = tuple(self.ranks[rank] for rank in ranks)
        self._dismissed |= set(members) if is_last else set()
        return members

    def spare(self, count: int) -> None:
        """Note that the next generation begins without so many ranks, since its plan has no use for them."""
        is_enough = len(self.ranks) - count >= self._least
        self._num_spared = 0 if is_enough else self._num_spared + count

    def can_lose(self, numbers: Collection[int]) -> bool:
        """Whether enough ranks are left without these members, and without those that have finished or are to."""
        staying = set(self.ranks) - self._finished - self._dismissed - set(numbers)
        return not self.fixed and len(staying) >= self._bound(numbers)

    def lose(self, numbers: Collection[int]) -> None:
        """Take the ranks of members that are lost, have finished or were told to; what others saw is no failure."""
        self._finished |= self._dismissed & set(self.ranks)  # nobody asks them for anything more
        self.ranks = tuple(number for number in self.ranks if number not in self._finished.union(numbers))
        self._returning |= self._may_return.intersection(self._members[number].host for number in numbers)
        self._counts_on_returning |= bool(self._returning)
        self._delivered.clear()  # they may have to do so again
        self._failed = (self._failed - set(self.ranks)) | set(numbers)

    def has_left(self, number: int) -> bool:
        """Whether a member that wanted to leave did, or is about to: who leaves for want of work was told before."""
        return number in self._announced & self._finished - self._failed

    @property
    def departed(self) -> tuple[int, ...]:
        """Members with a rank that are lost: without a word, or with no more to say than what they had delivered."""
        gone = (self._left - self._finished) | (self._finished & self._delivered - self._dismissed)
        return tuple(number for number in self.ranks if number in gone)

    def begin(self, num_ranks: int) -> Generation:
        """Begin a generation of the first ranks.

        Raises:
            InternalError: one of them does not listen.
        """
        members = self.ranks[:num_ranks]
        for number in members:
            if self.member(number).address is None or number in self._left | self._finished:
                raise InternalError(f"member {number} is not prepared, and cannot be in a generation")
        self.generation = Generation(number=self.reserve(), members=members)
        return self.generation

    def reserve(self) -> int:
        """Return a number for a generation, or for what members say to each other beside one: later than all before."""
        self._num_reserved += 1
        return self._num_reserved - 1

    def validate(self) -> None:
        """Check what must hold after each event.

        Raises:
            InternalError: it does not.
        """
        if len(set(self.ranks)) < len(self.ranks):
            raise InternalError(f"a member has two ranks: {self.ranks}")
        if not {*self.ranks, *self._announced, *self.gone, *self._failed} <= self._members.keys():
            raise InternalError("somebody is known that never came")
        if set(self.newcomers) & {*self.ranks, *self.gone}:
            raise InternalError(f"newcomers {self.newcomers} have ranks already, or have left")

    def _bound(self, lost: Collection[int] = ()) -> int:
        """The fewest ranks that may go on, if only to wait for others, when some are lost."""
        comes_again = self._returning or any(self._members[number].host in self._may_return for number in lost)
        return 1 if comes_again else self._fewest

    def _is_here(self, number: int) -> bool:
        return number not in self._left | self._finished | self._failed | self._announced

    def _admit(self, member: Member) -> None:
        if member.number in self._members:
            raise InternalError(f"member {member.number} came twice: a number is given once")
        self._members[member.number] = member
        self._started.pop(member.number, None)
