"""What the coordinator is told: the events of a job.

The shell knows members; what the coordinator decides for a generation knows ranks (see
`runtime/coordinator/coordinator.py`). All plain data: a job can be replayed from a list of events. What is
answered is in `commands.py`.
"""

from dataclasses import dataclass
from typing import Any

from nfold.core.cluster import Node
from nfold.core.job import Known
from nfold.errors import Terminated
from nfold.runtime.control.spool import Arrived


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a member."""

    member: int
    message: dict[str, Any]
    file: Arrived | None = None
    """What came in pieces before it."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message of a member that has a rank."""

    rank: int
    message: dict[str, Any]
    file: Arrived | None = None
    """What came in pieces before it."""


@dataclass(frozen=True, slots=True)
class Left:
    """A member's connection ended, or it has ended before it had one."""

    member: int
    status: str
    """How its process ended: `was killed by signal 9 (SIGKILL)`."""
    comes_again: bool = False
    """Whether its host is there still, and takes another member in its place."""


@dataclass(frozen=True, slots=True)
class ReleaseWanted:
    """A member is to leave as soon as the others can go on without it."""

    member: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class HostReady:
    """A host has come while the job goes on and holds the program. For the shell, which starts a member there."""

    node: Node
    why: str = ""
    """Who brought it."""
    launched_at: float | None = None
    """When its agent was started, in seconds since 1970; None: not known."""


@dataclass(frozen=True, slots=True)
class MemberStarted:
    """A member was started on a host that has come; it says hello later, if ever."""

    member: int
    node: Node
    """The host, as plans call it."""
    why: str = ""
    """Who brought it."""
    launched_at: float | None = None
    """As `HostReady` has it."""


@dataclass(frozen=True, slots=True)
class HostGone:
    """A host's agent has ended, whatever it had, or nothing could be started there: no member will be."""

    host: str
    """As plans call it."""


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Somebody came, is prepared, left, or is to leave; what follows is for `Membership` to say."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The user pressed Ctrl-C, or left the loop over steps."""

    by_key: bool = False
    """Ctrl-C: somebody waits to see that it was heard."""
    by_manager: bool = False
    """SIGTERM, as job managers send it."""

    def as_error(self) -> KeyboardInterrupt:
        """Return what ends the run with it."""
        return Terminated() if self.by_manager else KeyboardInterrupt()


@dataclass(frozen=True, slots=True)
class TimeUp:
    """The time that the user gave the run is over, but for what writing a checkpoint takes."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Continue:
    """In lockstep: the caller wants one more step."""


@dataclass(frozen=True, slots=True)
class CheckpointWanted:
    """In lockstep: the caller wants a checkpoint of the step that it was handed."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The timer that was asked for ran out."""


@dataclass(frozen=True, slots=True)
class ClockTick:
    """Time has passed."""

    now_s: float
    heard_s: dict[int, float]
    """When each member that is a process was last heard, by the same clock."""
    come_again: frozenset[int] = frozenset()
    """Members whose hosts would take others in their places, if they were lost now."""


@dataclass(frozen=True, slots=True)
class KillAnnounced:
    """Members are about to be killed because the user asked for it; it comes before they are gone."""

    members: tuple[int, ...]
    fault: str
    """As it was asked for."""


@dataclass(frozen=True, slots=True)
class StateTaken:
    """The checkpoint that was kept last is what ranks are given from now on."""

    header: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedAside:
    """What was planned for other members while ranks train."""

    stayers: tuple[int, ...]
    """As it was asked for."""
    newcomers: tuple[int, ...]
    version: int = 0
    """Of the links and speeds that it was asked with."""
    members: tuple[int, ...] = ()
    """Of the next generation, by rank, as far as the plan has work for them; empty: there is none to follow."""
    known: Known | None = None
    """With its plan; None: there is none to follow."""
    builds: tuple[dict[str, Any], ...] = ()
    """The order that makes each rank build its part, without the state."""
    notes: tuple[str, ...] = ()
    """What to tell once it is followed."""
    refusal: str = ""
    """Why there is no plan with the newcomers; empty: there is one."""
    longer: float = 0.0
    """By which share of it a step would be longer with the newcomers, so that they are left out; 0: it is not."""


Event = (
    Said
    | Received
    | Left
    | ReleaseWanted
    | HostReady
    | MemberStarted
    | HostGone
    | MembersChanged
    | Interrupted
    | TimeUp
    | Continue
    | CheckpointWanted
    | TimedOut
    | ClockTick
    | KillAnnounced
    | StateTaken
    | PlannedAside
)
