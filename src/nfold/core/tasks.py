"""What a rank does in a step: a class for each kind of task, with just its fields.

    lane      tasks                                                played
    compute   Load, Forward, Backward                              one after another, in the order in which they
              SumSquares, FindClipFactor                           are listed
              OptimizerStep, FoldStatistics
    network   Send, Receive                                        as soon as what they wait for has happened

A Receive pairs with the Send of the same tag on the peer. `F2.0` is the forward of segment 2 for chunk 0.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

SpanKind = Literal["LOAD", "F", "B", "SEND", "RECV", "UPDATE"]
"""What the time of a task counts as. UPDATE: all that a step does after its gradients are summed."""
Purpose = Literal[
    "activation", "activation gradient", "reduce", "gather", "push", "pull", "statistics", "norm", "acknowledgement"
]
"""Of a message. `reduce` and `push` bring gradients of weights, `gather` their sums, `pull` new values."""
BufferKind = Literal["gradient", "addend", "value", "statistics", "running", "norm", "acknowledgement"]
"""Gradients of a bucket, or the whole numbers that they are summed as (`--exact`); its values; rows of a group of batch
norms; the running statistics of one; `squares` of each rank or the `factor`; nothing."""


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements [start, stop) of a flat buffer that a rank keeps from step to step."""

    kind: BufferKind
    name: str
    """The bucket's, the group's or the module's."""
    start: int
    stop: int
    chunk: int | None = None
    """The only one that they tell of, if there is one."""


@dataclass(frozen=True, slots=True)
class ChunkTensor:
    """A tensor that one operator makes for others, or the gradient of one, for one chunk."""

    name: str
    chunk: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """Something that happens while a task runs: a bucket's gradients are complete before the whole backward is."""

    event: int
    reduction: str
    fraction: float
    """Share of the task's duration after which it is expected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    id: int
    """Also the event of its end."""
    after: tuple[int, ...] = ()
    """Events of the same rank that it waits for."""
    kind: ClassVar[SpanKind]
    form: ClassVar[str]
    """Of its name."""

    @property
    def name(self) -> str:
        """What people are shown."""
        return self.form.format(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load(_Task):
    """Gets the samples of a chunk."""

    kind: ClassVar[SpanKind] = "LOAD"
    form: ClassVar[str] = "LOAD {0.chunk}"
    chunk: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Forward(_Task):
    """Computes a segment's outputs for a chunk."""

    kind: ClassVar[SpanKind] = "F"
    form: ClassVar[str] = "F{0.segment}.{0.chunk}"
    chunk: int
    segment: int
    """Index into `RankSchedule.segments`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backward(_Task):
    """Computes the gradients of a segment's inputs and adds those of its parameters to their buckets."""

    kind: ClassVar[SpanKind] = "B"
    form: ClassVar[str] = "B{0.segment}.{0.chunk}"
    chunk: int
    segment: int
    signals: tuple[Signal, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SumSquares(_Task):
    """Adds the squares of summed gradients to this rank's part of the norm."""

    kind: ClassVar[SpanKind] = "UPDATE"
    form: ClassVar[str] = "NORM {0.gradients.name}"
    gradients: Elements


@dataclass(frozen=True, kw_only=True, slots=True)
class FindClipFactor(_Task):
    """Adds the squares of all ranks and finds what brings the norm below its limit."""

    kind: ClassVar[SpanKind] = "UPDATE"
    form: ClassVar[str] = "NORM"


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerStep(_Task):
    """Applies summed gradients to parameters."""

    kind: ClassVar[SpanKind] = "UPDATE"
    gradients: Elements | None
    """None: of all buckets at once, for an optimizer that must see all parameters."""

    @property
    def name(self) -> str:
        """The name that traces and pages show."""
        return "UPDATE" if self.gradients is None else f"UPDATE {self.gradients.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class FoldStatistics(_Task):
    """Folds the batch statistics of all chunks into running ones."""

    kind: ClassVar[SpanKind] = "UPDATE"
    form: ClassVar[str] = "FOLD {0.group}"
    group: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageEnd(_Task):
    """One end of a message: its peer, its tag, and which bytes it carries for what purpose."""

    peer: int
    tag: int
    purpose: Purpose
    data: Elements | ChunkTensor
    payload_bytes: int
    """For a full batch."""

    @property
    def name(self) -> str:
        """The name that traces and pages show."""
        return f"{self.purpose} {self.data.name} {self.form} {self.peer}"

    @property
    def bucket(self) -> str | None:
        """The bucket whose gradients, sums or values travel."""
        data = self.data
        return data.name if isinstance(data, Elements) and data.kind in ("gradient", "addend", "value") else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Send(MessageEnd):
    """Sends bytes to a peer. It ends when the transport no longer needs the buffer."""

    kind: ClassVar[SpanKind] = "SEND"
    form: ClassVar[str] = "to"


@dataclass(frozen=True, kw_only=True, slots=True)
class Receive(MessageEnd):
    """Receives bytes from a peer. It ends when they are in their buffer."""

    kind: ClassVar[SpanKind] = "RECV"
    form: ClassVar[str] = "from"
    combine: Literal["copy", "add", "hold"] = "copy"
    """Over the elements, added to them, or kept aside for the Receive that names it."""
    onto: int | None = None
    """The Receive whose bytes were kept aside and are added to this one's first."""
    completes: bool = False
    """Whether it is the last that its elements wait for: whole numbers become gradients again."""


COMMITTED = (OptimizerStep, FoldStatistics)
"""What changes the training's state: played last in a step that is committed, when all of its messages are over."""
ComputeTask = Load | Forward | Backward | SumSquares | FindClipFactor | OptimizerStep | FoldStatistics
Task = ComputeTask | Send | Receive


def chunk_of(task: Task) -> int | None:
    """Return the chunk that a task is for; None: it is for the whole step."""
    if isinstance(task, MessageEnd):
        return task.data.chunk
    return task.chunk if isinstance(task, (Load, Forward, Backward)) else None


_NAMES = {kind: tuple(each.name for each in fields(kind)) for kind in (*Task.__args__, Signal, Elements, ChunkTensor)}
_KINDS = {kind.__name__: kind for kind in _NAMES}


def to_row(value: Any) -> Any:
    """Return a task as its class's name and its values, without their names: a rank is sent thousands."""
    names = _NAMES.get(type(value))
    if names is None:
        return [*map(to_row, value)] if isinstance(value, tuple) else value
    return [type(value).__name__, *[to_row(getattr(value, name)) for name in names]]


def from_row(row: list[Any]) -> Any:
    """Return the task that `to_row` gave."""
    values = [from_row(each) if isinstance(each, list) else each for each in row]
    if not values or not isinstance(values[0], str):
        return tuple(values)
    kind = _KINDS[values[0]]
    return kind(**dict(zip(_NAMES[kind], values[1:], strict=True)))
