"""A node's cores under processor sharing: each job slows the others by `Node.slowdown`.

All jobs of a node slow down together, so one virtual clock per node is enough: it runs 1 / slowdown(busy) as fast as
time does, and a job ends when the clock has moved by the job's own work. A change of the set of jobs costs
O(log jobs) and no job is touched.
"""

from heapq import heappop, heappush

from nfold.core.cluster import Node
from nfold.simulation.timeline import SETTLE, Action, Timeline


class Cores:
    """The cores of one node and the jobs on them."""

    def __init__(self, timeline: Timeline, node: Node) -> None:
        self._timeline = timeline
        self._node = node
        self._due: list[tuple[float, int, float, Action]] = []
        self._sequence = 0
        self._num_jobs = 0
        self._busy = 0.0
        self._virtual = 0.0
        self._since = 0.0
        self._generation = 0
        self._unsettled = False

    def start(
        self, work_s: float, width: float, done: Action, milestones: tuple[tuple[float, Action], ...] = ()
    ) -> None:
        """Begin a job.

        Args:
            work_s: how long it takes when nothing else runs on the node.
            width: cores that it keeps busy.
            done: played at its end.
            milestones: (fraction of the job, action), each played when that much of it is done.
        """
        self._advance()
        # What was measured on an idle node already pays for the job's own threads crowding each other.
        length = work_s / self._node.slowdown(width)
        for fraction, action in milestones:
            self._push(self._virtual + fraction * length, 0.0, action)
        self._push(self._virtual + length, width, done)
        self._num_jobs += 1
        self._busy += width
        self._touch()

    def _push(self, due: float, width: float, action: Action) -> None:
        self._sequence += 1
        heappush(self._due, (due, self._sequence, width, action))

    def _advance(self) -> None:
        elapsed = self._timeline.now - self._since
        self._virtual += elapsed / self._node.slowdown(self._busy)
        self._since = self._timeline.now

    def _touch(self) -> None:
        """Ask for one new look at the rates when all of this instant has happened."""
        if not self._unsettled:
            self._unsettled = True
            self._timeline.at(self._timeline.now, self._settle, SETTLE)

    def _settle(self) -> None:
        self._unsettled = False
        self._generation += 1
        if self._due:
            generation = self._generation
            left = (self._due[0][0] - self._virtual) * self._node.slowdown(self._busy)
            self._timeline.at(self._timeline.now + left, lambda: self._fire(generation))

    def _fire(self, generation: int) -> None:
        if generation != self._generation:
            return
        self._virtual, self._since = max(self._virtual, self._due[0][0]), self._timeline.now
        reached = []
        while self._due and self._due[0][0] <= self._virtual:
            reached.append(heappop(self._due))
        for _, _, width, _ in reached:
            self._release(width)
        self._touch()
        for _, _, _, action in reached:
            action()

    def _release(self, width: float) -> None:
        if width == 0.0:
            return
        self._num_jobs -= 1
        self._busy = self._busy - width if self._num_jobs else 0.0
