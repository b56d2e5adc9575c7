"""One training step as data: per rank, the tasks it plays and what each of them waits for.

Two interpreters play it, one in virtual time and one on real ranks. There is no task for "an all-reduce": a reduction
is the messages that make it up, so bytes are predicted by adding payloads, and the interpreters know no strategy.
"""

from dataclasses import dataclass
from typing import Any

from nfold.core import codec
from nfold.core.tasks import Elements, Send, Task, from_row, to_row


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

    def row(self, chunk: int) -> Elements:
        """Return the elements in which a chunk's means and variances lie."""
        return Elements("statistics", self.name, chunk * self.num_elements, (chunk + 1) * self.num_elements, chunk)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSchedule:
    """The tasks that one rank plays in each step, and the segments that they compute."""

    rank: int
    segments: tuple[Segment, ...]
    tasks: tuple[Task, ...]
    num_events: int
    num_tags: int = 0
    """Of a step, over all ranks."""
    statistics: tuple[StatisticsGroup, ...] = ()
    """Of all ranks."""

    def to_document(self) -> dict[str, Any]:
        """Return the schedule as JSON values, which the coordinator sends to its rank."""
        return {
            "rank": self.rank,
            "segments": [codec.encode(each) for each in self.segments],
            "tasks": [to_row(task) for task in self.tasks],
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
            tasks=tuple(map(from_row, document["tasks"])),
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
        """The batch-norm groups of all ranks."""
        return self.ranks[0].statistics

    @property
    def sent_bytes(self) -> int:
        """The payload bytes that all ranks together send in a full step."""
        return sum(task.payload_bytes for rank in self.ranks for task in rank.tasks if isinstance(task, Send))
