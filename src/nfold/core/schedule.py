"""One training step as data: per rank, the tasks it plays and what each of them waits for.

Two interpreters play it, one in virtual time and one on real ranks. There is no task for "an all-reduce": a reduction
is the messages that make it up, so bytes are predicted by adding payloads, and the interpreters know no strategy.

    lane      tasks                      played
    compute   LOAD, F, B, UPDATE         one after another, in the order in which they are listed
    network   SEND, RECV                 as soon as what they wait for has happened

A RECV pairs with the SEND of the same tag on the peer. `F2.0` is the forward of segment 2 for chunk 0.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

from nfold.core import codec

TaskKind = Literal["LOAD", "F", "B", "SEND", "RECV", "UPDATE"]
Purpose = Literal[
    "", "activation", "gradient", "reduce", "gather", "push", "pull", "statistics", "norm", "acknowledgement"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """Something that happens while a task runs: a bucket's gradients are complete before the whole backward is."""

    event: int
    reduction: str
    fraction: float
    """Share of the task's duration after which it is expected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One thing that a rank does. Its `id` is also the event of its end."""

    id: int
    kind: TaskKind
    name: str
    after: tuple[int, ...] = ()
    """Events of the same rank."""
    chunk: int = -1
    segment: int = -1
    """Index into `RankSchedule.segments`."""
    reduction: str = ""
    """The bucket (or `statistics/k`) that it belongs to."""
    signals: tuple[Signal, ...] = ()
    peer: int = -1
    tag: int = -1
    purpose: Purpose = ""
    buffer: str = ""
    """Where the bytes lie: `gradient/BUCKET`, `value/BUCKET`, `statistics/K`, `activation/TENSOR`,
    `activation-gradient/TENSOR`; of a norm `squares`, one for each rank, and `factor`; of an acknowledgement `taken`,
    which has no elements."""
    start: int = 0
    stop: int = 0
    """Elements of the buffer, of an UPDATE those of its bucket; both 0 for an activation, whose size follows from its
    chunk."""
    combine: Literal["copy", "add", "hold"] = "copy"
    """What a RECV does with its bytes: over the buffer, added to it, or kept aside for the RECV that names it."""
    onto: int = -1
    """The RECV whose bytes were kept aside and are added to this one's first."""
    payload_bytes: int = 0
    """For a full batch."""

    def to_row(self) -> list[Any]:
        """Return the values alone: a rank has thousands of tasks, and names would be most of what it is sent."""
        row = [getattr(self, name) for name in _TASK_NAMES]
        row[_SIGNALS] = [[each.event, each.reduction, each.fraction] for each in self.signals]
        return row

    @classmethod
    def from_row(cls, row: list[Any]) -> "Task":
        """Return the task that `to_row` gave."""
        values = dict(zip(_TASK_NAMES, row, strict=True))
        values["after"] = tuple(values["after"])
        values["signals"] = tuple(
            Signal(event=event, reduction=name, fraction=part) for event, name, part in values["signals"]
        )
        return cls(**values)


_TASK_NAMES = tuple(each.name for each in fields(Task))
_SIGNALS = _TASK_NAMES.index("signals")


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A maximal run of one rank's operators in the global topological order."""

    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    """Tensors made elsewhere or by the program's data, in order of first use."""
    outputs: tuple[str, ...]
    """Tensors that another segment uses, and the loss."""
    backward: bool
    """Whether anything in it gets a gradient."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticsGroup:
    """Batch-norm calls whose chunks have the same owners; one row of means and variances per chunk."""

    name: str
    operators: tuple[str, ...]
    members: tuple[int, ...]
    num_elements: int
    """Of one row."""
    dtype: str
    item_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSchedule:
    """What one rank plays in each step."""

    rank: int
    segments: tuple[Segment, ...]
    tasks: tuple[Task, ...]
    num_events: int
    num_tags: int = 0
    """Of a step, over all ranks."""
    statistics: tuple[StatisticsGroup, ...] = ()
    """Of all ranks."""

    def to_document(self) -> dict[str, Any]:
        """Return what a rank is sent."""
        return {
            "rank": self.rank,
            "segments": [codec.encode(each) for each in self.segments],
            "tasks": [task.to_row() for task in self.tasks],
            "num_events": self.num_events,
            "num_tags": self.num_tags,
            "statistics": [codec.encode(each) for each in self.statistics],
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "RankSchedule":
        """Return the schedule that `to_document` gave."""
        return cls(
            rank=document["rank"],
            segments=tuple(codec.decode(Segment, each) for each in document["segments"]),
            tasks=tuple(map(Task.from_row, document["tasks"])),
            num_events=document["num_events"],
            num_tags=document["num_tags"],
            statistics=tuple(codec.decode(StatisticsGroup, each) for each in document["statistics"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """What all ranks play in each step of one generation."""

    num_chunks: int
    ranks: tuple[RankSchedule, ...]

    @property
    def statistics(self) -> tuple[StatisticsGroup, ...]:
        """Batch-norm calls of all ranks."""
        return self.ranks[0].statistics

    @property
    def sent_bytes(self) -> int:
        """Payload that a full step sends, all ranks together."""
        return sum(task.payload_bytes for rank in self.ranks for task in rank.tasks if task.kind == "SEND")
