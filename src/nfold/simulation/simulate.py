"""Schedule + seconds per task + Cluster -> the StepTrace of a step in virtual time.

Deterministic: equal arguments give equal traces. O((tasks + messages) log tasks) while few flows share a link;
see links.py for what many cost.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from nfold.core.cluster import Cluster
from nfold.core.schedule import Schedule
from nfold.core.tasks import Backward, ComputeTask, Forward, Load, Receive, Send, Task
from nfold.core.trace import StepTrace
from nfold.errors import InternalError
from nfold.simulation.cores import Cores
from nfold.simulation.messages import Courier, Message
from nfold.simulation.player import Player
from nfold.simulation.unsteadiness import slowness
from nfold.simulation.virtual_time import VirtualTime

PERIODS = 12
"""Of the longest quota: for so long steps are played in a row."""
MOST_STEPS = 32
MOST_TASKS = 12_000
"""Of all steps in a row together: a larger schedule's step is so long that no grant counts."""
_SHOWN = 8
_GOLDEN = 0.618034
"""Spreads the nodes' quota periods evenly: each node has begun to count at a time of its own."""


def simulate(
    schedule: Schedule,
    *,
    task_seconds: Mapping[tuple[int, int], float],
    cluster: Cluster,
    nodes: tuple[str, ...],
    threads: tuple[int, ...],
    load_waits: tuple[float, ...] = (),
    commits: bool = False,
) -> StepTrace:
    """Play a step in virtual time.

    Where nodes have quotas of processor time, a step begins with what the one before it has left of them: a step that
    fits into one grant is only once that fast. Several short ones are played then, each rank beginning the next when it
    has ended its own, and that which takes most nearly what they take on average is returned, stretched to just that.

    Args:
        schedule: what each rank plays.
        task_seconds: by (rank, task id) of each compute task: seconds on an otherwise idle node of speed 1,
            with the rank's number of threads.
        cluster: cores, speeds and channels.
        nodes: node of each rank.
        threads: compute threads of each rank. Reading data (LOAD) keeps one core busy whatever this says, or none.
        load_waits: of each rank, the share of the seconds of LOADs in which no core is busy; empty: it never waits.
        commits: whether ranks change their state only once all messages of the step are over.

    Raises:
        ClusterError: two ranks that talk have no link between them.
        InternalError: the schedule cannot be played to its end, or seconds of a task are missing.
    """
    return _World(schedule, task_seconds, cluster, nodes, threads, load_waits, commits=commits).play()


class _Key(NamedTuple):
    """Tells one message of a run of steps."""

    step: int
    sender: int
    receiver: int
    tag: int


class _World:
    """All ranks, the cores they share and the messages between them."""

    def __init__(
        self,
        schedule: Schedule,
        task_seconds: Mapping[tuple[int, int], float],
        cluster: Cluster,
        nodes: tuple[str, ...],
        threads: tuple[int, ...],
        load_waits: tuple[float, ...],
        *,
        commits: bool,
    ) -> None:
        self._timeline = VirtualTime()
        self._commits = commits
        self._task_seconds = task_seconds
        self._load_waits = load_waits or (0.0,) * len(nodes)
        self._nodes = [cluster.node(name) for name in nodes]
        self._threads = threads
        self._cores = {
            node.name: Cores(self._timeline, node, phase=index * _GOLDEN % 1.0)
            for index, node in enumerate(cluster.nodes)
        }
        self._courier = Courier(self._timeline, cluster, nodes, self._cores)
        self._slower = slowness(schedule, self._nodes)
        self._schedules = {rank.rank: rank for rank in schedule.ranks}
        self._players: dict[int, Player] = {}
        """Of the step that each rank plays."""
        self._played: defaultdict[int, list[Player]] = defaultdict(list)
        """Those who are done, by step."""
        self._last_step = 0
        self._idle: list[int] = []
        """Ranks without tasks that have ended a step: how many there are is for the others to say."""
        busy = (self._nodes[rank.rank] for rank in schedule.ranks if rank.tasks)
        self._until_s = PERIODS * max((node.quota_period_s for node in busy if node.meets_its_quota), default=0.0)
        self._most_steps = min(MOST_STEPS, MOST_TASKS // max(1, sum(len(rank.tasks) for rank in schedule.ranks)))
        self._arrived: set[_Key] = set()
        """Messages whose receive could not start yet."""
        self._posted: dict[_Key, Receive] = {}
        """Receives whose message is not there yet."""

    def play(self) -> StepTrace:
        for rank in self._schedules:
            self._next(rank, 0)
        self._timeline.run()
        stuck = [line for player in self._players.values() for line in player.stuck()]
        if stuck:
            more = f"; and {len(stuck) - _SHOWN} more" if len(stuck) > _SHOWN else ""
            raise InternalError(
                f"the schedule is stuck after {self._timeline.now:.6f} s with {len(stuck)} tasks left: "
                f"{'; '.join(stuck[:_SHOWN])}{more}. Please report it with plan.json and graph.json"
            )
        return self._typical()

    def _next(self, rank: int, step: int) -> None:
        """Let a rank begin a step: with what belongs to no task."""
        node = self._nodes[rank]
        given = (self._schedules[rank], self._begin, step, self._timeline.now)
        self._players[rank] = player = Player(*given, commits=self._commits)
        if node.step_cpu_s and self._schedules[rank].tasks:
            self._cores[node.name].start(node.step_cpu_s * node.slowdown(1), 1.0, partial(self._start, player))
        else:
            self._start(player)

    def _start(self, player: Player) -> None:
        player.start(self._timeline.now)
        if not self._schedules[player.rank].tasks:
            self._ended(player.rank)

    def _ended(self, rank: int) -> None:
        """Note that a rank has played its step, and go on with the next if there is one.

        Whoever has something to do and is the first to end the last step says whether another follows.
        """
        player, going = self._players[rank], [rank]
        self._played[player.step].append(player)
        if player.step == self._last_step and not self._schedules[rank].tasks:
            self._idle.append(rank)
        elif player.step == self._last_step:
            another = self._timeline.now < self._until_s and self._last_step + 1 < self._most_steps
            self._last_step += another
            going += self._idle
            self._idle.clear()
        for each in going:
            step = self._players[each].step
            if step < self._last_step:
                self._timeline.at(self._timeline.now, partial(self._next, each, step + 1))

    def _typical(self) -> StepTrace:
        """Return the only step, or the most typical one but the first."""
        if not self._last_step:
            return _trace(self._played[0])
        ends_s = [max(player.end_s for player in self._played[step]) for step in range(self._last_step + 1)]
        mean_s = (ends_s[-1] - ends_s[0]) / self._last_step
        later = (_trace(self._played[step]) for step in range(1, self._last_step + 1))
        typical = min(later, key=lambda trace: abs(max(trace.step_s) - mean_s))
        return _stretched(typical, mean_s / max(typical.step_s)) if mean_s else typical

    def _begin(self, rank: int, task: Task) -> None:
        if isinstance(task, Send):
            self._send(rank, task)
        elif isinstance(task, Receive):
            self._post(rank, task)
        else:
            self._compute(rank, task)

    def _compute(self, rank: int, task: ComputeTask) -> None:
        player, node = self._players[rank], self._nodes[rank]
        milestones = tuple(
            (min(1.0, max(0.0, signal.fraction)), lambda event=signal.event: player.happen(event, self._timeline.now))
            for signal in (task.signals if isinstance(task, Backward) else ())
        )
        cores, done, seconds = self._cores[node.name], partial(self._finish, rank, task), self._seconds(rank, task)
        if isinstance(task, Load):
            wait_s = seconds * self._load_waits[rank]
            cores.read((seconds - wait_s) / node.speed, wait_s, done, milestones)
            return
        slower = self._slower.get(rank, 1.0) if isinstance(task, (Forward, Backward)) else 1.0
        cores.start(seconds / node.speed * slower, max(1, self._threads[rank]), done, milestones)

    def _seconds(self, rank: int, task: Task) -> float:
        try:
            return self._task_seconds[rank, task.id]
        except KeyError:
            raise InternalError(f"no seconds were given for {task.name} (task {task.id}) of rank {rank}") from None

    def _send(self, rank: int, task: Send) -> None:
        self._courier.send(
            Message(
                sender=rank,
                receiver=task.peer,
                payload_bytes=task.payload_bytes,
                gone=partial(self._finish, rank, task),
                arrived=partial(self._arrive, _Key(self._players[rank].step, rank, task.peer, task.tag)),
            )
        )

    def _arrive(self, key: _Key) -> None:
        """The bytes of a SEND are there: its RECV completes, if it could start."""
        receive = self._posted.pop(key, None)
        if receive is None:
            self._arrived.add(key)
        else:
            self._received(key.receiver, receive)

    def _post(self, rank: int, task: Receive) -> None:
        """A RECV can start: it completes, if its bytes are there."""
        key = _Key(self._players[rank].step, task.peer, rank, task.tag)
        if key in self._arrived:
            self._arrived.discard(key)
            self._received(rank, task)
        else:
            self._posted[key] = task

    def _received(self, rank: int, task: Receive) -> None:
        # Through the heap: a long chain of receives whose bytes are all there would recurse as deep.
        self._timeline.at(self._timeline.now, partial(self._finish, rank, task))

    def _finish(self, rank: int, task: Task) -> None:
        player = self._players[rank]
        player.finish(task, self._timeline.now)
        if player.is_done:
            self._ended(rank)


def _trace(players: list[Player]) -> StepTrace:
    players = sorted(players, key=lambda player: player.rank)
    return StepTrace(
        step=0,
        origin="simulated",
        step_s=tuple(player.step_s for player in players),
        spans=tuple(span for player in players for span in player.spans),
        begin_s=tuple(player.begin_s for player in players),
    )


def _stretched(trace: StepTrace, factor: float) -> StepTrace:
    spans = (replace(span, start_s=span.start_s * factor, end_s=span.end_s * factor) for span in trace.spans)
    return replace(trace, step_s=tuple(step_s * factor for step_s in trace.step_s), spans=tuple(spans))
