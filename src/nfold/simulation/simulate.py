"""Schedule + seconds per task + Cluster -> the StepTrace of one step in virtual time.

Deterministic: equal arguments give equal traces. O((tasks + messages) log tasks) while few flows share a link;
see links.py for what many cost.
"""

from collections.abc import Mapping
from functools import partial

from nfold.core.cluster import Cluster
from nfold.core.schedule import Schedule, Task
from nfold.core.trace import StepTrace
from nfold.errors import InternalError
from nfold.simulation.cores import Cores
from nfold.simulation.messages import Courier, Message
from nfold.simulation.player import Player
from nfold.simulation.timeline import Timeline
from nfold.simulation.unsteadiness import slowness

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
) -> StepTrace:
    """Play one step in virtual time.

    Args:
        schedule: what each rank plays.
        task_seconds: by (rank, task id) of each LOAD, F, B and UPDATE: seconds on an otherwise idle node of speed 1,
            with the rank's number of threads.
        cluster: cores, speeds and channels.
        nodes: node of each rank.
        threads: compute threads of each rank. Reading data (LOAD) keeps one core busy whatever this says.

    Raises:
        ClusterError: two ranks that talk have no link between them.
        InternalError: the schedule cannot be played to its end, or seconds of a task are missing.
    """
    world = _World(schedule, task_seconds, cluster, nodes, threads)
    return world.play()


class _World:
    """All ranks, the cores they share and the messages between them."""

    def __init__(
        self,
        schedule: Schedule,
        task_seconds: Mapping[tuple[int, int], float],
        cluster: Cluster,
        nodes: tuple[str, ...],
        threads: tuple[int, ...],
    ) -> None:
        self._timeline = Timeline()
        self._task_seconds = task_seconds
        self._nodes = [cluster.node(name) for name in nodes]
        self._threads = threads
        self._cores = {
            node.name: Cores(self._timeline, node, phase=index * _GOLDEN % 1.0)
            for index, node in enumerate(cluster.nodes)
        }
        self._courier = Courier(self._timeline, cluster, nodes, self._cores)
        self._slower = slowness(schedule, self._nodes)
        self._players = {rank.rank: Player(rank, self._begin) for rank in schedule.ranks}
        self._arrived: set[tuple[int, int, int]] = set()
        """(sender, receiver, tag) of messages whose receive could not start yet."""
        self._posted: dict[tuple[int, int, int], Task] = {}
        """Receives whose message is not there yet."""

    def play(self) -> StepTrace:
        for player in self._players.values():
            player.start()
        self._timeline.run()
        stuck = [line for player in self._players.values() for line in player.stuck()]
        if stuck:
            more = f"; and {len(stuck) - _SHOWN} more" if len(stuck) > _SHOWN else ""
            raise InternalError(
                f"the schedule is stuck after {self._timeline.now:.6f} s with {len(stuck)} tasks left: "
                f"{'; '.join(stuck[:_SHOWN])}{more}. Please report it with schedule.json"
            )
        return self._trace()

    def _trace(self) -> StepTrace:
        players = [self._players[rank] for rank in sorted(self._players)]
        return StepTrace(
            step=0,
            origin="simulated",
            step_s=tuple(player.end_s for player in players),
            spans=tuple(span for player in players for span in player.spans),
            begin_s=tuple(0.0 for _ in players),
        )

    def _begin(self, rank: int, task: Task) -> None:
        if task.kind == "SEND":
            self._send(rank, task)
        elif task.kind == "RECV":
            self._post(rank, task)
        else:
            self._compute(rank, task)

    def _compute(self, rank: int, task: Task) -> None:
        player, node = self._players[rank], self._nodes[rank]
        milestones = tuple(
            (min(1.0, max(0.0, signal.fraction)), lambda event=signal.event: player.happen(event, self._timeline.now))
            for signal in task.signals
        )
        width = 1 if task.kind == "LOAD" else max(1, self._threads[rank])
        work_s = self._seconds(rank, task) / node.speed
        if task.kind in ("F", "B"):
            work_s *= self._slower.get(rank, 1.0)
        work_s += node.task_cpu_s * node.slowdown(width)
        self._cores[node.name].start(work_s, width, partial(self._finish, rank, task), milestones)

    def _seconds(self, rank: int, task: Task) -> float:
        try:
            return self._task_seconds[rank, task.id]
        except KeyError:
            raise InternalError(f"no seconds were given for {task.name} (task {task.id}) of rank {rank}") from None

    def _send(self, rank: int, task: Task) -> None:
        self._courier.send(
            Message(
                sender=rank,
                receiver=task.peer,
                payload_bytes=task.payload_bytes,
                gone=partial(self._finish, rank, task),
                arrived=partial(self._arrive, rank, task),
            )
        )

    def _arrive(self, rank: int, task: Task) -> None:
        """The bytes of a SEND are there: its RECV completes, if it could start."""
        key = (rank, task.peer, task.tag)
        receive = self._posted.pop(key, None)
        if receive is None:
            self._arrived.add(key)
        else:
            self._received(task.peer, receive)

    def _post(self, rank: int, task: Task) -> None:
        """A RECV can start: it completes, if its bytes are there."""
        key = (task.peer, rank, task.tag)
        if key in self._arrived:
            self._arrived.discard(key)
            self._received(rank, task)
        else:
            self._posted[key] = task

    def _received(self, rank: int, task: Task) -> None:
        # Through the heap: a long chain of receives whose bytes are all there would recurse as deep.
        self._timeline.at(self._timeline.now, partial(self._finish, rank, task))

    def _finish(self, rank: int, task: Task) -> None:
        self._players[rank].finish(task, self._timeline.now)
