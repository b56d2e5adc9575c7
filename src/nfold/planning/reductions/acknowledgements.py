"""Lets no rank run ahead of those that it sends to: who would get nothing back is told that all was used.

Where gradients, sums or norms come back, a rank ends its step only when each rank that it sends to has begun the same
one. The frozen front of a pipeline gets none of those. It would play step after step while what it sent piles up, so an
empty message goes back when the receiver's forwards have taken all of it, and is waited for as any other:

    rank 0    F0.0 ── F0.1 ── F0.2 ─────────────── RECV, next step
                 └──────┐└──────┐└──────┐           │
    rank 1               F0.0 B0.0 F0.1 B0.1 F0.2 ──┴── B0.2 ── UPDATE
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from nfold.core.tasks import Backward, Elements, MessageEnd, Receive, Send, Task
from nfold.planning.reductions.ring_and_server_messages import MessageWriter, PlannedMessage

TAKEN = Elements("acknowledgement", "taken", 0, 0)
"""What such a message carries: nothing."""
_ADDS = frozenset({"reduce", "push"})
_WHOLE_STEP = -1
"""Before all chunks: what belongs to none is sent in a short batch, too."""

Pair = tuple[int, int]
"""A rank, and one that it sends to."""


def acknowledge(tasks: Sequence[Sequence[Task]], network: MessageWriter) -> None:
    """Add the empty messages that a step needs; none where every rank hears of those that it sends to.

    Args:
        tasks: of each rank, all others that it plays.
        network: takes the messages.
    """
    for (sender, receiver), chunk in unanswered(tasks).items():
        came = {task.id for task in tasks[receiver] if isinstance(task, Receive) and task.peer == sender}
        used = [task.id for task in tasks[receiver] if not came.isdisjoint(task.after)]
        # Of a chunk, since nothing may go back in a batch too short for what it answers.
        told = replace(TAKEN, chunk=None if chunk == _WHOLE_STEP else chunk)
        message = PlannedMessage(receiver, sender, "acknowledgement", told, 0)
        network.send(message, tuple(sorted({*came, *used})))


def unanswered(tasks: Sequence[Sequence[Task]]) -> dict[Pair, int]:
    """Return the pairs of which the sender may end its step before the receiver has begun it, with their first chunk.

    A short batch leaves out the last chunks with their messages. So an answer counts only if no message on its way is
    of a later chunk than the first one that the pair has messages of. O(tasks) where most ways are short.
    """
    first = _first_chunks(tasks)
    one_way = {pair: chunk for pair, chunk in first.items() if chunk < first.get(pair[::-1], chunk + 1)}
    shared = _shared_sums(tasks)
    lonely = {pair: chunk for pair, chunk in one_way.items() if shared[pair[0]].isdisjoint(shared[pair[1]])}
    if not lonely:
        return {}
    step = _Step(tasks)
    return {pair: chunk for pair, chunk in sorted(lonely.items()) if not step.hears_of(*pair, chunk)}


def _first_chunks(tasks: Sequence[Sequence[Task]]) -> dict[Pair, int]:
    """The least chunk that each pair has messages of."""
    first: dict[Pair, int] = {}
    for rank, own in enumerate(tasks):
        for task in own:
            if isinstance(task, Send):
                pair, chunk = (rank, task.peer), _chunk(task)
                first[pair] = min(chunk, first.get(pair, chunk))
    return first


def _chunk(task: MessageEnd) -> int:
    return _WHOLE_STEP if task.data.chunk is None else task.data.chunk


def _shared_sums(tasks: Sequence[Sequence[Task]]) -> list[set[str]]:
    """The buckets that each rank adds something to: all who do wait for each other. What is left to find is little."""
    sends = [[task for task in own if isinstance(task, Send)] for own in tasks]
    return [{task.data.name for task in own if task.purpose in _ADDS} for own in sends]


class _Step:
    """All tasks of a step, by what sets them free."""

    def __init__(self, tasks: Sequence[Sequence[Task]]) -> None:
        self._receives = [[task for task in own if isinstance(task, Receive)] for own in tasks]
        self._sends = {
            (rank, task.tag): task for rank, own in enumerate(tasks) for task in own if isinstance(task, Send)
        }
        self._tasks: list[dict[int, Task]] = []
        """By rank and event."""
        self._before: list[dict[int, Task]] = []
        """By rank and task: the one before it on the compute lane."""
        for own in tasks:
            lane = [task for task in own if not isinstance(task, MessageEnd)]
            backward = [task for task in lane if isinstance(task, Backward)]
            signalled = {signal.event: task for task in backward for signal in task.signals}
            self._tasks.append({task.id: task for task in own} | signalled)
            self._before.append({task.id: before for before, task in pairwise(lane)})

    def hears_of(self, rank: int, peer: int, chunk: int) -> bool:
        """Whether anything that ends a rank's step waits for a task of a peer, in a batch that has this chunk."""
        left: list[tuple[int, Task]] = [(rank, task) for task in self._receives[rank]]
        seen = {(rank, task.id) for _, task in left}
        while left:
            for where, task in self._waits_for(*left.pop(), chunk):
                if where == peer:
                    return True
                if (where, task.id) not in seen:
                    seen.add((where, task.id))
                    left.append((where, task))
        return False

    def _waits_for(self, rank: int, task: Task, chunk: int) -> list[tuple[int, Task]]:
        found = [(rank, self._tasks[rank][event]) for event in task.after]
        if task.id in self._before[rank]:
            found.append((rank, self._before[rank][task.id]))
        if isinstance(task, Receive) and _chunk(task) <= chunk:
            found.append((task.peer, self._sends[task.peer, task.tag]))
        return found
