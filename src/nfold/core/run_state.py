"""What others may see of a run: how far it is, as its command heard last, and its line among the user's runs."""

from dataclasses import dataclass, field
from typing import Literal

from nfold.core.member_event import MemberEvent
from nfold.core.report import TimeParts

Phase = Literal["starting", "planning", "building", "training", "done", "stopped", "failed"]
"""The last three are ends: all steps are done, somebody asked for the end, something went wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankState:
    """One rank lately. None: not known, or not yet."""

    rank: int
    node: str
    role: Literal["worker", "server"]
    compute_share: float | None = None
    """Of its last steps: forward, backward and update."""
    communication_share: float | None = None
    """Of its last steps: waiting for messages, slower ranks included."""
    input_share: float | None = None
    compute_cores: float | None = None
    """Processor seconds a second, over about one second; so are the other figures from here on."""
    communication_cores: float | None = None
    throttled_share: float | None = None
    """It was ready to run and its share of the processor was used up."""
    rss_bytes: int | None = None
    sent_bytes_per_s: float | None = None
    """That left its node by the interface that ranks use, headers included, whoever sent them."""
    received_bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkState:
    """The link of a node, as it was measured or declared."""

    node: str
    uplink_bytes_per_s: float
    downlink_bytes_per_s: float
    origin: Literal["measured", "declared"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvent:
    """Something that changed."""

    at: float
    """Seconds since 1970."""
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunState:
    """A run at one moment."""

    at: float
    """Seconds since 1970, by the clock of the command's host."""
    phase: Phase
    strategy: str = ""
    """Empty: nothing is planned yet."""
    workers: int = 0
    servers: int = 0
    step: int = 0
    """Steps that are done."""
    kept_step: int = 0
    """Of the last checkpoint; 0: this command has written none."""
    total_steps: int = 0
    epoch: int = 0
    """The first is 1; 0: no step is done."""
    num_epochs: int = 0
    loss: float | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Of the last evaluation; None stands for NaN."""
    samples_per_s: float | None = None
    left_s: float | None = None
    """Until the last step, at the pace of the last ones."""
    parts: TimeParts | None = None
    """Of a recent step, mean over the workers."""
    ranks: tuple[RankState, ...] = ()
    links: tuple[LinkState, ...] = ()
    """Of the nodes in use; empty where all ranks live on one."""
    events: tuple[RunEvent, ...] = ()
    """The last ones, oldest first."""
    ledger: tuple[MemberEvent, ...] = ()
    """The last changes of who trains, oldest first; events.jsonl has all."""


Ending = Literal["running", "done", "stopped", "failed", "lost", "silent"]
"""`lost`: its process is gone without a word. `silent`: it runs on another host, and was not heard for long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """A run among the user's runs."""

    number: int = 0
    """Never given to another run; 0: not listed yet."""
    folder: str
    """Absolute."""
    script: str
    """FILE.py:function; empty: it was given in Python."""
    host: str
    pid: int
    started: str
    """When the process started, as its machine tells: with host and pid, no other process has it."""
    begun: float
    """Seconds since 1970, as `heard` and `ended` are."""
    heard: float
    ended: float | None = None
    ending: Ending = "running"
    cause: str = ""
    """First line of what it failed of."""
    strategy: str = ""
    workers: int = 0
    servers: int = 0
    nodes: int = 0
    step: int = 0
    total_steps: int = 0
    loss: float | None = None
