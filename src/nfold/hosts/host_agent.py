"""One agent that has come, as its coordinator sees it, and what is said of those that may not or do not come."""

import contextlib
import itertools
import queue
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from nfold.core import codec
from nfold.core.options.host_range import HostRange
from nfold.core.text.units import count, seconds
from nfold.errors import ClusterError
from nfold.hosts.host_facts import HostFacts, Versions
from nfold.hosts.manager import Manager, PlaceState
from nfold.hosts.program_files.archive import Archive
from nfold.runtime.control.channel import ChannelClosed, ControlChannel, Message, QueueChannel

DISMISSED_S = 1.0
"""How long a host that is free gives members to end by themselves."""
SKEW_S = 60.0
"""Clocks that differ by more are told of."""

_MOST_TRIES = 3
"""What kills members may lie in their host, or in the program."""
RETURNED = 1 << 20
"""Place of the first agent that came back, and of those behind it."""


@dataclass(slots=True)
class HostAgent:
    """One agent that has come."""

    place: int
    name: str
    """Of its host, as plans and messages call it; no two are equal."""
    facts: HostFacts
    channel: ControlChannel
    seen: str = ""
    """The address that it dials from, as this machine sees it."""
    skew_s: float = 0.0
    """How far its clock is ahead of this machine's, as far as a message's way lets that be seen."""
    is_placed: bool = False
    """Whether its manager was asked for it; else somebody brought it by hand."""
    launched_at: float | None = None
    """When its process began, in seconds since 1970 by this machine's clock; None: not known."""
    holds_program: bool = False
    gone: str = ""
    """How its connection ended; empty: it is there."""
    is_leaving: bool = False
    """Whether its host wants it to end as soon as the run can do without."""
    is_taken: bool = False
    """Whether its host was taken away, with or without a word: nobody here gave it back."""
    num_tries: int = 0
    """How often it was given another member, since its last one was lost."""
    is_dismissed: bool = False
    """Whether it was told that it is needed no more."""
    replies: "queue.SimpleQueue[Message]" = field(default_factory=queue.SimpleQueue, repr=False)
    """What it answered to orders that are waited for."""

    @property
    def how_lost(self) -> str | None:
        """How members on it ended that are gone with it; None: it is there."""
        return f"was lost with its host {self.name}: {self.gone}" if self.gone else None

    @property
    def may_try_again(self) -> bool:
        """Whether it may have another member in place of one that was lost."""
        return not (self.gone or self.is_leaving) and self.num_tries < _MOST_TRIES

    def hang_up(self) -> None:
        """End its connection and let go of that: encrypted, it has 86 KiB, and who is lost is remembered to the end."""
        self.channel.close()
        self.channel, _ = QueueChannel.pair()
        self.channel.close()

    def tries_again(self) -> None:
        """Note that it comes once more, and now."""
        self.num_tries += 1
        self.launched_at = time.time()


def _nobody_listens(*_: object) -> None:
    """Tell nobody."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostChanges:
    """How many hosts may take part, where they come and go while the job lasts, and who is told of them."""

    hosts: HostRange | None = None
    """None: those that the job begins with stay the same."""
    came: Callable[[HostAgent], None] = _nobody_listens
    """Is told of each agent that holds the program and is not among the first; see `AgentPool.next_ready`."""
    leaves: Callable[[int, str], None] = _nobody_listens
    """Is told of each member whose host wants it to leave in order, and why."""
    taken: Callable[[HostAgent], None] = _nobody_listens
    """Is told of each agent that is gone because its host was taken away."""
    gone: Callable[[HostAgent], None] = _nobody_listens
    """Is told of each agent that is gone, whatever for."""


NO_CHANGES = HostChanges()


def place_of(hello: Message, taken: Collection[int]) -> int:
    """Return the place of an agent that has come: as it says, or the first that is not taken.

    Who has served another coordinator of the run before comes behind all that a manager of this one may start.
    """
    if hello.get("returns"):
        return next(number for number in itertools.count(RETURNED + (hello["place"] or 0)) if number not in taken)
    return hello["place"] if hello["place"] is not None else next(n for n in itertools.count() if n not in taken)


def make_room(place: int | None, agents: dict[int, HostAgent]) -> None:
    """Give who was brought by hand another place, where a manager has granted the first free one to somebody else."""
    if place in agents and not (agents[place].is_placed or agents[place].gone):
        guest = agents.pop(place)
        guest.place = max([RETURNED, *agents]) + 1  # behind all that a manager may give
        agents[guest.place] = guest


def unique_name(name: str, taken: Collection[str]) -> str:
    """Return the name of a host, with a number behind it where others are called so."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def give(agent: HostAgent, order: Message) -> None:
    """Give an order; one who is gone is found out by who hears it."""
    with contextlib.suppress(ChannelClosed):
        agent.channel.send(order)


def dismiss(agent: HostAgent, why: str = "") -> None:
    """Let an agent end: the run needs it no more, or does not let it in, for a reason."""
    agent.is_dismissed = True
    give(agent, {"do": "refuse", "why": why} if why else {"do": "stop", "grace_s": DISMISSED_S})


def program_order(archive: Archive, function: str) -> Message:
    """Return the order that brings a program to a host, its files apart."""
    lock = codec.encode(archive.lock) if archive.lock else None
    named = {"digest": archive.digest, "script": archive.script, "function": function}
    return {"do": "program", **named, "lock": lock}


def reply_of(agent: HostAgent, left_s: float, within_s: float) -> Message:
    """Wait for an agent's reply, of `within_s` seconds in all for as many as are left.

    Raises:
        ClusterError: it is gone, says that it cannot, or does not answer in time.
    """
    try:
        reply = agent.replies.get(timeout=max(0.0, left_s))
    except queue.Empty:
        why = agent.gone or f"it did not answer within {seconds(within_s)}"
        raise ClusterError(f"{agent.name}: {why}") from None
    if reply["is"] == "failed":
        raise ClusterError(f"{agent.name}: {reply['why']}")
    return reply


def tell_skew(agent: HostAgent) -> str:
    """Say that an agent's clock is far from this machine's; empty: it is not."""
    skew_s = agent.skew_s
    if abs(skew_s) <= SKEW_S:
        return ""
    side = "ahead of" if skew_s > 0 else "behind"
    return (
        f"note: the clock of {agent.name} is {seconds(abs(skew_s))} {side} this machine's. Training does not mind; "
        "times in what it prints are its own"
    )


def tell_versions(name: str, there: Versions, here: Versions) -> str:
    return (
        f"{name} has {there.told}; this machine has {here.told}. Ranks that compute by different versions may compute "
        "different things. Install the same versions on both; --env brings torch and other packages, but not Python, "
        "nor nfold."
    )


def ended_early(manager: Manager, ended: PlaceState) -> ClusterError:
    """Return what says that the agent of a place has ended and will not come."""
    where, how, lines = ended.name or f"place {ended.place}", ended.reason or "ended", manager.last_lines(ended.place)
    error = ClusterError(f"{manager.title}: the agent on {where} {how} before it reached this machine.")
    if lines:
        error.add_note("\n  ".join(("The last lines from there:", *lines)))
    return error


def tell_waiting(told: str, states: Sequence[PlaceState], missing: int, manager: Manager) -> str:
    """Say why places wait, in their manager's words; where it says nothing, what was told before."""
    reasons = dict.fromkeys(state.reason for state in states if state.stage == "waiting" and state.reason)
    return f"waiting for {count(missing, 'host')} of {manager.title}: {'; '.join(reasons)}" if reasons else told


def tell_late(manager: Manager, states: Sequence[PlaceState], wanted: int, come: int, within_s: float) -> str:
    reasons = [f"{state.name or f'place {state.place}'} ({state.reason or state.stage})" for state in states]
    missing = f" Missing: {', '.join(reasons)}." if reasons else ""
    return (
        f"{manager.title}: {come} of {count(wanted, 'host')} came within {seconds(within_s)}.{missing} Ask for fewer "
        "with --nodes, or wait longer with --hosts-within."
    )
