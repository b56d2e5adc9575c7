"""What each rank did and when, in one vocabulary for measured and simulated steps."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from nfold.core.tasks import MessageEnd, Purpose, SpanKind, Task, chunk_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One task on one rank. For a message: from when it could start until its bytes had gone or come."""

    rank: int
    kind: SpanKind
    name: str
    start_s: float
    end_s: float
    chunk: int = -1
    reduction: str = ""
    purpose: Purpose | Literal["", "gradient"] = ""
    """`gradient` stands in older files for `activation gradient`."""
    peer: int = -1
    payload_bytes: int = 0


def span_of(rank: int, task: Task, start_s: float, end_s: float, payload_bytes: int = 0) -> Span:
    """Return the span of a task that a rank has played, in seconds since the step began."""
    chunk = chunk_of(task)
    return Span(
        rank=rank,
        kind=task.kind,
        name=task.name,
        start_s=start_s,
        end_s=end_s,
        chunk=-1 if chunk is None else chunk,
        reduction=(task.bucket or "") if isinstance(task, MessageEnd) else "",
        purpose=task.purpose if isinstance(task, MessageEnd) else "",
        peer=task.peer if isinstance(task, MessageEnd) else -1,
        payload_bytes=payload_bytes,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTrace:
    """One step. Times are seconds since the step began on the rank's own clock, so they compare within a rank."""

    step: int
    origin: Literal["measured", "simulated"]
    step_s: tuple[float, ...]
    """Duration on each rank."""
    spans: tuple[Span, ...]
    begin_s: tuple[float, ...] = ()
    """When each rank began, on a clock that ranks of one node share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepParts:
    """Where one rank's time went in one step; the parts sum to `step_s` but for `other_s`."""

    step: int
    rank: int
    step_s: float
    """From the end of the previous step to the end of this one, checkpoints and evaluation left out."""
    input_s: float
    forward_s: float
    backward_s: float
    update_s: float
    communication_s: float
    """Exposed: the compute lane had nothing to do but wait for messages."""
    other_s: float
    sent_bytes: int
    """Payload counted at the transport."""
    samples: int
    """Of the chunks whose loss this rank computed, so that the ranks' samples add up to the batch."""

    @property
    def compute_s(self) -> float:
        """Seconds of forward and backward passes."""
        return self.forward_s + self.backward_s

    def to_row(self) -> list[float]:
        """Return the values without their names, which would be most of a report of many steps."""
        return [getattr(self, name) for name in _PART_NAMES]

    @classmethod
    def from_row(cls, row: list[Any]) -> "StepParts":
        """Return the parts that `to_row` gave."""
        return cls(**dict(zip(_PART_NAMES, row, strict=True)))


_PART_NAMES = tuple(part.name for part in fields(StepParts))


@dataclass(frozen=True, kw_only=True, slots=True)
class ReductionParts:
    """One bucket in one step on one rank that contributes gradients to it.

    The transfer of a bucket is the least of its durations over the ranks: the rank that came last waited for nobody.
    What another rank took beyond that it waited for a peer. So no common clock is needed. With a server a duration
    contains summing and updating there.
    """

    step: int
    rank: int
    reduction: str
    queue_s: float
    """From when its gradients were complete here until its first message began to move: others to the same peer were
    ahead of it."""
    duration_s: float
    """From then until its last message here had gone or come."""
    sent_bytes: int

    def to_row(self) -> list[Any]:
        """Return the values without their names."""
        return [getattr(self, name) for name in _REDUCTION_NAMES]

    @classmethod
    def from_row(cls, row: list[Any]) -> "ReductionParts":
        """Return the parts that `to_row` gave."""
        return cls(**dict(zip(_REDUCTION_NAMES, row, strict=True)))


_REDUCTION_NAMES = tuple(part.name for part in fields(ReductionParts))


def transfers_s(parts: Iterable[ReductionParts]) -> dict[str, float]:
    """Return by bucket the seconds that its bytes travelled in one step, without the waiting for peers."""
    least: dict[str, float] = {}
    for part in parts:
        least[part.reduction] = min(part.duration_s, least.get(part.reduction, part.duration_s))
    return least


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemSample:
    """What one rank and its node did since the sample before; taken about once a second while it trains.

    Where ranks are threads of one process, rank 0 samples for all of them.
    """

    rank: int
    node: str
    at_s: float
    """Since the rank began to train."""
    span_s: float
    """Seconds that the sample covers."""
    compute_cpu_s: float
    """Processor seconds of this rank's threads that compute."""
    communication_cpu_s: float
    """Processor seconds of this rank's threads that move bytes."""
    throttled_s: float
    """The rank was ready to run and its share of the processor was used up (cgroup quota)."""
    steal_s: float
    """The hypervisor gave the node's processors to others, all cores together."""
    neighbours_cpu_s: float
    """Processor seconds that all others took on the machine that the node is on: other programs and other ranks."""
    rss_bytes: int
    sent_bytes: int
    """That left by the interface that the ranks use, headers included, whoever sent them; the loopback of a single
    machine, where what is sent is also received."""
    received_bytes: int
    disk_bytes: int
    """Read and written by this rank."""

    def to_row(self) -> list[Any]:
        """Return the values without their names."""
        return [getattr(self, name) for name in _SAMPLE_NAMES]

    @classmethod
    def from_row(cls, row: list[Any]) -> "SystemSample":
        """Return the sample that `to_row` gave."""
        return cls(**dict(zip(_SAMPLE_NAMES, row, strict=True)))


_SAMPLE_NAMES = tuple(part.name for part in fields(SystemSample))


@dataclass(frozen=True, kw_only=True, slots=True)
class RankUsage:
    """The memory and processor time that one rank's processes took over the whole run."""

    rank: int
    node: str
    role: Literal["worker", "server"]
    peak_rss_bytes: int
    cpu_s: float
    wall_s: float
    shared_rss_bytes: int = 0
    """Of it at the end: pages that other ranks of the node may hold too, those of libraries above all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """A run as measured: the parts of every step on every rank, and some steps task by task."""

    parts: tuple[StepParts, ...]
    steps: tuple[StepTrace, ...]
    usage: tuple[RankUsage, ...]
    reductions: tuple[ReductionParts, ...] = ()
    samples: tuple[SystemSample, ...] = ()
    staleness: dict[str, int] = field(default_factory=dict)
    """Of asynchronous runs: how many gradients were applied that were so many updates old."""
    ledger: dict[str, float] = field(default_factory=dict)
    """Seconds of the whole run by what they went to, start-up and evaluation included."""
    is_asynchronous: bool = False
    """Workers waited for servers and never for each other, so that no wait can be told from a transfer by comparing."""
    num_steps: int | None = None
    """Steps that were played, of which `parts` has every second, fourth .. in a long run; None: it has all."""
    since_step: int = 0
    """First step over the links as they are in the cluster; before it, they were others. 0: they never changed."""
    since_s: float = 0.0
    """When that was, on the clock of the samples."""

    @property
    def ages(self) -> dict[int, int]:
        """The number of gradients by their staleness in updates; empty where steps are synchronous."""
        return {int(age): number for age, number in self.staleness.items()}
