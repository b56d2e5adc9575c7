"""A node's cores under processor sharing: each job slows the others by `Node.slowdown`.

All jobs of a node slow down together, so one virtual clock per node is enough: it runs 1 / slowdown(busy) as fast as
time does, and a job ends when the clock has moved by the job's own work. A change of the set of jobs costs
O(log jobs) and no job is touched.

A quota grants processor time by the period. What a node has rested it may use at full speed; who has used up the grant
stands still until the next one. So a short task takes its bare time or waits for most of a period, and only long ones
take what the share of cores says.

    granted   |full ╲        |full ╲
              |      ╲_______|      ╲___
    speed     |rushed  0     |rushed 0
"""

from functools import cache, partial
from heapq import heappop, heappush
from math import floor, inf

from nfold.core.cluster import Node
from nfold.simulation.virtual_time import SETTLE, Action, VirtualTime

_TIE_S = 1e-9
"""Less than this of a grant, or until the next, is a matter of rounding."""


class Cores:
    """The cores of one node, shared by the jobs that run on them."""

    def __init__(self, timeline: VirtualTime, node: Node, phase: float = 0.0) -> None:
        """Begin with a whole grant.

        Args:
            timeline: of all nodes.
            node: whose cores these are.
            phase: part of a period that has gone by.
        """
        self._timeline = timeline
        self._node = node
        self._due: list[tuple[float, int, float, Action]] = []
        self._sequence = 0
        self._num_jobs = 0
        self._busy = 0.0
        self._virtual = 0.0
        self._since = 0.0
        self._slowdown, self._rushed = cache(node.slowdown), cache(node.rushed)
        self._whole_cores = node.whole_cores
        self._grant_s = node.cores * node.quota_period_s if node.quota_period_s else inf
        self._left_s = self._grant_s
        self._granted_at = (1.0 - phase) * node.quota_period_s if node.quota_period_s else inf
        self._generation = 0
        self._unsettled = False

    def start(
        self, work_s: float, width: float, done: Action, milestones: tuple[tuple[float, Action], ...] = ()
    ) -> None:
        """Begin a job.

        Args:
            work_s: how long it takes when nothing else runs on the node, and the node has not rested.
            width: cores that it keeps busy.
            done: played at its end.
            milestones: (fraction of the job, action), each played when that much of it is done.
        """
        self._advance()
        # What was measured on an idle node already pays for the job's own threads crowding each other.
        length = work_s / self._slowdown(width)
        for fraction, action in milestones:
            self._push(self._virtual + fraction * length, 0.0, action)
        self._push(self._virtual + length, width, done)
        self._num_jobs += 1
        self._busy += width
        self._touch()

    def read(
        self, work_s: float, wait_s: float, done: Action, milestones: tuple[tuple[float, Action], ...] = ()
    ) -> None:
        """Begin to read: a job of one core, and then what is waited for without any.

        Args:
            work_s: of the job; see `start`.
            wait_s: of a disk or a network, which nothing on the node slows down.
            done: played at its end.
            milestones: of the job.
        """
        timeline = self._timeline
        self.start(work_s, 1.0, done if not wait_s else lambda: timeline.at(timeline.now + wait_s, done), milestones)

    def _push(self, due: float, width: float, action: Action) -> None:
        self._sequence += 1
        heappush(self._due, (due, self._sequence, width, action))

    @property
    def _used(self) -> float:
        """Cores that are busy at this moment."""
        return min(self._busy, self._whole_cores)

    @property
    def _slower(self) -> float:
        """How much slower jobs are than alone; infinite without any grant left."""
        if self._grant_s == inf:
            return self._slowdown(self._busy)
        return self._rushed(self._busy) if self._left_s > 0 else inf

    def _advance(self) -> None:
        now = self._timeline.now
        elapsed = now - self._since
        if not elapsed:
            return
        self._virtual += elapsed / self._slower
        self._since = now
        if self._grant_s < inf:
            self._spend(now, elapsed)

    def _spend(self, now: float, elapsed: float) -> None:
        """Take from the grant what was used; begin with a whole one where the next is there."""
        self._left_s -= elapsed * self._used
        if self._left_s < _TIE_S:
            self._left_s = 0.0
        if now > self._granted_at - _TIE_S:
            self._left_s, period = self._grant_s, self._node.quota_period_s
            self._granted_at += (max(0, floor((now - self._granted_at) / period)) + 1) * period

    def _touch(self) -> None:
        """Ask for one new look at the rates when all of this instant has happened."""
        if not self._unsettled:
            self._unsettled = True
            self._timeline.at(self._timeline.now, self._settle, SETTLE)

    def _settle(self) -> None:
        self._unsettled = False
        self._generation += 1
        if self._due:
            next_s = (self._due[0][0] - self._virtual) * self._slower if self._left_s > 0 else inf
            turn_s = self._until_turn_s()
            play = self._turn if turn_s < next_s else self._fire
            self._timeline.at(self._timeline.now + min(turn_s, next_s), partial(play, self._generation))

    def _until_turn_s(self) -> float:
        """How long it takes until a grant is used up or the next one is there."""
        if self._grant_s == inf:
            return inf
        empty_s = self._left_s / self._used if self._left_s > 0 and self._busy else inf
        return min(empty_s, self._granted_at - self._timeline.now)

    def _turn(self, generation: int) -> None:
        """A grant is used up, or the next one is there."""
        if generation == self._generation:
            self._advance()
            self._touch()

    def _fire(self, generation: int) -> None:
        if generation != self._generation:
            return
        self._advance()
        self._virtual = max(self._virtual, self._due[0][0])
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
