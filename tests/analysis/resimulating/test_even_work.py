"""What unevenly divided work costs: never more than an even division would win, since work cannot be taken away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from injected import Injected

from nfold.analysis.resimulating.without_each_cause import EVEN_LOAD, what_if
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.schedule import RankSchedule, Schedule
from nfold.core.tasks import Elements, Forward, Receive, Send
from nfold.planning.costs.scenario import Scenario

FREE = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e12, origin="declared")
NEARLY_EMPTY = {"strategy": "pipeline", "mbit": 50_000.0, "chunks": 8, "seconds_per_sample": 1e-2, "update_s": 1e-5}


def told(**fields):
    """The report, and its cause that a worker waits for another."""
    report = Injected(**{**NEARLY_EMPTY, **fields}).report()
    return report, next(cause for cause in report.causes if cause.kind == "peer wait")


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.exhaustive), 4])
def test_a_stage_with_nearly_all_work_promises_no_more_than_the_number_of_workers(workers):
    report, waited = told(workers=workers, operators=(0.96, 0.01, 0.01, 0.01, 0.01))
    assert report.verdict.sub_cause == "uneven stages"
    assert 1 < waited.what_if_speedup <= workers * 1.01
    assert waited.lost_s <= (1 - 1 / workers) * report.step_s.p50
    assert all(gain.speedup <= workers * 1.05 for gain in report.verdict.gains if "more" not in gain.change)


def test_how_uneven_stages_are_is_said_in_parts_of_all_computing():
    report, _ = told(workers=2, operators=(0.96, 0.01, 0.01, 0.01, 0.01))
    assert "the plan gives it 96 % of all computing, an even part would be 50 %" in report.verdict.text


def scenario(work_s, speeds, *, in_turn):
    """Each rank computes by itself; in turn: each after it has heard from the one before."""
    ranks = []
    for rank in range(len(work_s)):
        what = {"purpose": "reduce", "data": Elements("gradient", "b0", 0, 1), "payload_bytes": 1}
        before = (Receive(id=1, peer=rank - 1, tag=rank, **what),) if in_turn and rank else ()
        compute = Forward(id=0, chunk=0, segment=0, after=tuple(task.id for task in before))
        sends = in_turn and rank + 1 < len(work_s)
        after = (Send(id=2, peer=rank + 1, tag=rank + 1, after=(0,), **what),)
        tasks = (*before, compute, *(after if sends else ()))
        ranks.append(RankSchedule(rank=rank, segments=(), tasks=tasks, num_events=3))
    links = {"local": FREE, "uplink": FREE, "downlink": FREE}
    nodes = tuple(
        Node(name=f"n{rank}", cores=1, memory_bytes=1, speed=speed, **links) for rank, speed in enumerate(speeds)
    )
    return Scenario(
        schedule=Schedule(num_chunks=1, ranks=tuple(ranks)),
        task_seconds={(rank, 0): seconds for rank, seconds in enumerate(work_s)},
        cluster=Cluster(nodes=nodes),
        nodes=tuple(node.name for node in nodes),
        threads=(1,) * len(nodes),
    )


@given(st.lists(st.floats(0.01, 100.0), min_size=2, max_size=5), st.booleans())
def test_even_work_wins_no_more_than_there_are_workers(work_s, in_turn):
    played = scenario(work_s, [1.0] * len(work_s), in_turn=in_turn)
    whole_s = max(played.play().step_s)
    even_s = what_if(played, whole_s, [EVEN_LOAD])[EVEN_LOAD]
    least_s = whole_s if in_turn else sum(work_s) / len(work_s)
    assert least_s * 0.99 <= even_s <= whole_s * 1.01, "no division makes less of all work"


def test_a_slow_node_may_win_all_that_it_is_slower_by():
    played = scenario([1.0, 1.0], [1.0, 0.1], in_turn=False)
    assert what_if(played, 10.0, [EVEN_LOAD])[EVEN_LOAD] == pytest.approx(1.0)


def test_shares_that_fit_the_nodes_are_left_alone():
    played = scenario([1.0, 0.5, 1.0], [1.0, 0.5, 1.0], in_turn=False)
    assert what_if(played, 1.0, [EVEN_LOAD])[EVEN_LOAD] == pytest.approx(1.0)
