"""Small schedules written by hand."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.schedule import RankSchedule, Schedule
from nfold.core.tasks import Backward, Elements, Forward, Load, Receive, Send, Signal, Task
from nfold.core.trace import StepTrace
from nfold.simulation import simulate

WIRE = Channel(latency_s=0.001, bandwidth_bytes_per_s=1e6, origin="declared")


def a_node(name: str, cores: float = 4.0, **fields: Any) -> Node:
    links: dict[str, Any] = {"local": WIRE, "uplink": WIRE, "downlink": WIRE}
    return Node(name=name, cores=cores, memory_bytes=1 << 30, **{**links, **fields})


def play(
    ranks: Mapping[int, list[tuple[Task, float]]],
    nodes: list[Node],
    *,
    where: list[str] | None = None,
    threads: int = 1,
    load_waits: tuple[float, ...] = (),
    commits: bool = False,
) -> StepTrace:
    """Simulate tasks given as (task, seconds) per rank; rank r lives on nodes[r] unless `where` says otherwise."""
    schedule = Schedule(
        num_chunks=1,
        ranks=tuple(
            RankSchedule(rank=rank, segments=(), tasks=tuple(task for task, _ in tasks), num_events=1000)
            for rank, tasks in ranks.items()
        ),
    )
    seconds = {(rank, task.id): value for rank, tasks in ranks.items() for task, value in tasks}
    return simulate(
        schedule,
        task_seconds=seconds,
        cluster=Cluster(nodes=tuple(nodes)),
        nodes=tuple(where or [node.name for node in nodes]),
        threads=(threads,) * len(ranks),
        load_waits=load_waits,
        commits=commits,
    )


def a_compute(
    task: int, seconds: float, after: tuple[int, ...] = (), *, signals: tuple[Signal, ...] = (), chunk: int = 0
) -> tuple[Task, float]:
    """A forward of segment `task`, or a backward if it has signals."""
    if signals:
        return Backward(id=task, after=after, chunk=chunk, segment=task, signals=signals), seconds
    return Forward(id=task, after=after, chunk=chunk, segment=task), seconds


def a_load(task: int, seconds: float) -> tuple[Task, float]:
    return Load(id=task, chunk=0), seconds


def a_message(tag: int, peer: int, payload_bytes: int) -> dict[str, Any]:
    data = Elements("gradient", f"b{tag}", 0, 1)
    return {"tag": tag, "peer": peer, "purpose": "reduce", "data": data, "payload_bytes": payload_bytes}


def a_send(task: int, peer: int, payload_bytes: int, after: tuple[int, ...] = (), tag: int = 0) -> tuple[Task, float]:
    return Send(id=task, after=after, **a_message(tag, peer, payload_bytes)), 0.0


def a_receive(
    task: int, peer: int, payload_bytes: int, after: tuple[int, ...] = (), tag: int = 0
) -> tuple[Task, float]:
    return Receive(id=task, after=after, **a_message(tag, peer, payload_bytes)), 0.0


@pytest.fixture
def node() -> Callable[..., Node]:
    return a_node


@pytest.fixture
def simulated() -> Callable[..., StepTrace]:
    return play


@pytest.fixture
def compute() -> Callable[..., tuple[Task, float]]:
    return a_compute


@pytest.fixture
def load() -> Callable[..., tuple[Task, float]]:
    return a_load


@pytest.fixture
def send() -> Callable[..., tuple[Task, float]]:
    return a_send


@pytest.fixture
def receive() -> Callable[..., tuple[Task, float]]:
    return a_receive
