"""Notes when each bucket's gradients were complete, began to move and were exchanged: a few clock reads a bucket.

    gradients complete here ──queue──> first bytes move ──duration──> last message here has gone or come

A message waits for its turn among those to other peers, and one that was handed to the transport may wait there behind
another bucket's to the same peer. So it begins to move when it was handed over or when the one before it had gone,
whichever is later.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nfold.core.tasks import Backward, MessageEnd, Send, Task
from nfold.core.trace import ReductionParts


@dataclass(slots=True)
class _Bucket:
    """One bucket on this rank, in the step under way."""

    name: str
    ready_events: frozenset[int]
    """After which the gradients of this rank are complete."""
    own_sends: frozenset[int]
    """SENDs that wait for nothing else, or only for other SENDs. A rank that only sums for others has none: it begins
    when it is ready."""
    num_messages: int
    sent_bytes: int
    not_ready: int = 0
    not_done: int = 0
    ready_s: float = 0.0
    moved_s: float = math.inf
    done_s: float = 0.0

    def begin(self) -> None:
        """Forget the step before."""
        self.not_ready, self.not_done = len(self.ready_events), self.num_messages
        self.moved_s = math.inf


class ReductionTimes:
    """The times of one rank's buckets. Not thread-safe: the engine calls it under its lock.

    Of buckets to which this rank contributes gradients and which travel: a dedicated server has none of its own.
    """

    def __init__(self, tasks: Iterable[Task], clock: Callable[[], float]) -> None:
        tasks = tuple(tasks)
        self._clock = clock
        self._buckets = tuple(_buckets(tasks))
        self._ready: dict[int, list[_Bucket]] = {}
        for bucket in self._buckets:
            for event in bucket.ready_events:
                self._ready.setdefault(event, []).append(bucket)
        by_name = {bucket.name: bucket for bucket in self._buckets}
        messages = [task for task in tasks if isinstance(task, MessageEnd)]
        self._messages = {task.id: by_name.get(task.bucket or "") for task in messages}
        self._peers = {task.id: task.peer for task in messages if isinstance(task, Send)}
        self._gone_s = dict.fromkeys(self._peers.values(), -math.inf)
        """When the last message to each peer had gone."""

    def begin(self) -> None:
        """Begin a step."""
        for bucket in self._buckets:
            bucket.begin()

    def happened(self, event: int, started_s: float) -> None:
        """Note that an event happened now; that of a Send happens when the transport is done with its bytes.

        Args:
            event: id in the rank's schedule.
            started_s: when a Send was handed to the transport, on the same clock.
        """
        if event in self._messages:
            self._ended(event, started_s)
        for bucket in self._ready.get(event, ()):
            bucket.not_ready -= 1
            if bucket.not_ready == 0:
                bucket.ready_s = self._clock()

    def parts(self, step: int, rank: int) -> tuple[ReductionParts, ...]:
        """Return the seconds of each bucket in the step that has ended."""
        return tuple(self._parts_of(bucket, step, rank) for bucket in self._buckets)

    def _ended(self, event: int, started_s: float) -> None:
        now_s, bucket = self._clock(), self._messages[event]
        if bucket is not None:
            if event in bucket.own_sends:
                bucket.moved_s = min(bucket.moved_s, max(started_s, self._gone_s[self._peers[event]]))
            bucket.not_done -= 1
            if bucket.not_done == 0:
                bucket.done_s = now_s
        if event in self._peers:
            self._gone_s[self._peers[event]] = now_s

    def _parts_of(self, bucket: _Bucket, step: int, rank: int) -> ReductionParts:
        moved_s = bucket.moved_s if bucket.own_sends else bucket.ready_s
        return ReductionParts(
            step=step,
            rank=rank,
            reduction=bucket.name,
            queue_s=max(0.0, moved_s - bucket.ready_s),
            duration_s=max(0.0, bucket.done_s - moved_s),
            sent_bytes=bucket.sent_bytes,
        )


def _buckets(tasks: tuple[Task, ...]) -> Iterable[_Bucket]:
    backward = [task for task in tasks if isinstance(task, Backward)]
    computed = {task.id for task in backward} | {signal.event for task in backward for signal in task.signals}
    sent = {task.id for task in tasks if isinstance(task, Send)}
    messages: dict[str, list[MessageEnd]] = {}
    for task in tasks:
        if isinstance(task, MessageEnd) and task.bucket is not None:
            messages.setdefault(task.bucket, []).append(task)
    for name, own in messages.items():
        ready = frozenset(event for task in own for event in task.after if event in computed)
        sends = [task for task in own if isinstance(task, Send)]
        if ready:
            yield _Bucket(
                name=name,
                ready_events=ready,
                own_sends=frozenset(task.id for task in sends if (ready | sent).issuperset(task.after)),
                num_messages=len(own),
                sent_bytes=sum(task.payload_bytes for task in sends),
            )
