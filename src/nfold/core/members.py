"""Who takes part in a job, and who has which rank in a stretch of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

Address = tuple[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A process or thread that takes part in a job. Its number is never given to another one."""

    number: int
    host: str
    pid: int
    address: Address | None = None
    """At which other members reach it; None: it does not listen yet. Without a host: nobody dials it."""
    seen: str = ""
    """The host that it dials from, as others see it; empty: not known."""

    @property
    def is_hidden(self) -> bool:
        """Whether an address translation (NAT) stands before it: only who is behind the same one can dial it."""
        return self.address is not None and self.address[0] != "" and self.seen not in ("", self.address[0])


def dial_order(members: Sequence[Member]) -> list[Member]:
    """Return members in an order in which each can dial those before it: who is hidden dials all that are not."""
    return sorted(members, key=lambda member: (member.is_hidden, member.number))


def find_apart(members: Sequence[Member]) -> tuple[Member, Member] | None:
    """Return two members that are hidden in different places, so that neither can dial the other; None: none are."""
    hidden = [member for member in members if member.is_hidden]
    return next(((one, other) for one, other in combinations(hidden, 2) if one.seen != other.seen), None)


def tell_apart(one: Member, other: Member) -> str:
    """Say that neither of two members can dial the other, and what to do."""
    hosts = " and ".join(f"{each.host} ({(each.address or ('',))[0]}, seen as {each.seen})" for each in (one, other))
    return (
        f"{hosts} are behind different address translations (NAT), so neither reaches the other, and ranks send to "
        "each other. Leave out all but one of such hosts, or join them by a VPN."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """A stretch of a run with one set of ranks."""

    number: int
    members: tuple[int, ...]
    """By rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turnover:
    """How the members of a generation differ from those of the one before: hosts, or members where all share one."""

    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    steps_again: int = 0
    """Steps that were done, are lost, and are played again."""
    again_from: str = ""
    """What the others go on from after a loss, in words."""
    why: dict[str, str] = field(default_factory=dict, compare=False)
    """What is known of the reason, by host."""
    launched_at: dict[str, float] = field(default_factory=dict, compare=False)
    """When the agent of a host that came later was started, in seconds since 1970."""

    def __bool__(self) -> bool:
        """Whether anybody came or went."""
        return bool(self.joined or self.left or self.lost)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedShift:
    """A node computes faster or slower than before, and that lasts."""

    node: str
    times_slower: float
    """Than when the run began; below 1: faster."""
    is_correction: bool = False
    """It is not the node that has changed: training shows what was measured for a moment before."""
    is_waited_for: bool = False
    """It computes about as fast as was planned with, and is done last: other shares win."""

    @property
    def told(self) -> str:
        """What has become of the node."""
        if self.is_waited_for:
            return "computes about as fast as was planned, and others wait for it"
        if abs(self.times_slower - 1) < _UNCHANGED and not self.is_correction:
            return "computes as fast as at the start again"
        when = "was measured at the start" if self.is_correction else "at the start"
        slower, faster = f"{self.times_slower:.1f} times slower", f"{1 / self.times_slower:.1f} times faster"
        return f"computes {slower if self.times_slower > 1 else faster} than {when}"


_UNCHANGED = 0.1
"""What a speed may differ from that at the start and still be called the same."""
NOBODY = Turnover()
"""The members stay."""
