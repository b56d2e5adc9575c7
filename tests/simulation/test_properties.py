"""What holds for every schedule."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.schedule import RankSchedule, Schedule
from nfold.core.tasks import Elements, Forward, MessageEnd, Receive, Send
from nfold.simulation import simulate

LOCAL = Channel(latency_s=0.01, bandwidth_bytes_per_s=1e3, origin="declared")
WIRE = Channel(latency_s=0.02, bandwidth_bytes_per_s=5e2, origin="declared")


@st.composite
def cases(draw):
    """A random DAG of computations with messages between ranks, placed on one or two nodes."""
    num_ranks = draw(st.integers(1, 4))
    seconds, tasks = {}, {rank: [] for rank in range(num_ranks)}
    for index in range(draw(st.integers(1, 12))):
        rank, task_id = draw(st.integers(0, num_ranks - 1)), 10 * index
        after = draw(st.lists(st.sampled_from([task.id for task in tasks[rank]] or [-1]), max_size=2))
        after = tuple(event for event in after if event >= 0)
        tasks[rank].append(Forward(id=task_id, chunk=0, segment=index, after=after))
        seconds[rank, task_id] = draw(st.integers(0, 64)) / 64
        peer = draw(st.integers(0, num_ranks - 1))
        if peer != rank:
            size = draw(st.integers(0, 1000))
            what = {"purpose": "reduce", "data": Elements("gradient", "b0", 0, size)}
            pair = {"tag": index, "payload_bytes": size, **what}
            tasks[rank].append(Send(id=task_id + 1, peer=peer, after=(task_id,), **pair))
            tasks[peer].append(Receive(id=task_id + 2, peer=rank, **pair))
    nodes = tuple(draw(st.sampled_from(("a", "b"))) for _ in range(num_ranks))
    return tasks, seconds, nodes, draw(st.sampled_from((1.0, 2.0)))


def run(tasks, seconds, nodes, cores, order=None):
    order = order or {rank: rank for rank in tasks}
    cluster = Cluster(
        nodes=tuple(
            Node(name=name, cores=cores, memory_bytes=1, local=LOCAL, uplink=WIRE, downlink=WIRE) for name in "ab"
        )
    )
    renamed = {order[rank]: [_renamed(task, order) for task in own] for rank, own in tasks.items()}
    where = {order[rank]: node for rank, node in enumerate(nodes)}
    schedule = Schedule(
        num_chunks=1,
        ranks=tuple(
            RankSchedule(rank=rank, segments=(), tasks=tuple(renamed[rank]), num_events=0) for rank in sorted(renamed)
        ),
    )
    return simulate(
        schedule,
        task_seconds={(order[rank], task): value for (rank, task), value in seconds.items()},
        cluster=cluster,
        nodes=tuple(where[rank] for rank in sorted(where)),
        threads=(1,) * len(nodes),
    )


def _renamed(task, order):
    return replace(task, peer=order[task.peer]) if isinstance(task, MessageEnd) else task


@settings(max_examples=30)
@given(cases())
def test_equal_input_gives_an_equal_trace(case):
    assert run(*case) == run(*case)


@settings(max_examples=30)
@given(cases())
def test_time_lies_between_the_busiest_rank_and_everything_in_a_row(case):
    tasks, seconds, nodes, cores = case
    step_s = max(run(*case).step_s)
    alone = [sum(seconds.get((rank, task.id), 0.0) for task in own) for rank, own in tasks.items()]
    on_node = [sum(alone[rank] for rank in tasks if nodes[rank] == name) / cores for name in "ab"]
    messages = sum(
        (
            LOCAL.seconds(task.payload_bytes)
            if nodes[rank] == nodes[task.peer]
            else WIRE.seconds(task.payload_bytes) + WIRE.latency_s
        )
        for rank, own in tasks.items()
        for task in own
        if task.kind == "SEND"
    )
    assert step_s >= max([*alone, *on_node]) - 1e-9
    assert step_s <= sum(alone) + messages + 1e-9


@settings(max_examples=30)
@given(cases(), st.randoms(use_true_random=False))
def test_renaming_ranks_changes_nothing(case, random):
    tasks = case[0]
    names = list(tasks)
    random.shuffle(names)
    order = dict(zip(tasks, names, strict=True))
    plain, renamed = run(*case), run(*case, order=order)
    for rank in tasks:
        assert renamed.step_s[order[rank]] == pytest.approx(plain.step_s[rank])


@settings(max_examples=30)
@given(cases())
def test_each_task_has_one_span_and_lane_spans_do_not_overlap(case):
    tasks = case[0]
    trace = run(*case)
    assert len(trace.spans) == sum(len(own) for own in tasks.values())
    for rank in tasks:
        lane = sorted((s.start_s, s.end_s) for s in trace.spans if s.rank == rank and s.kind == "F")
        assert all(left[1] <= right[0] + 1e-12 for left, right in pairwise(lane))
