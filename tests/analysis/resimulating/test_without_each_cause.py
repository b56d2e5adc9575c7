"""Simulating again without a cause."""

import pytest

from nfold.analysis.resimulating.without_each_cause import what_if
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.schedule import RankSchedule, Schedule
from nfold.core.tasks import Elements, Forward, Load, OptimizerStep, Receive, Send
from nfold.planning.costs.scenario import Scenario

CAUSES = ("network", "latency", "peer wait", "shared cores", "compute", "input", "update", "own input", "bubble")
LOCAL = Channel(latency_s=0.5, bandwidth_bytes_per_s=100.0, origin="declared")


@pytest.fixture
def found():
    """Read 1 s, compute 2 s (rank 0) or 4 s, exchange 150 bytes (0.5 + 1.5 s), update 0.25 s.

    Two ranks that are busy at once slow each other to half speed.
    """
    ranks, seconds = [], {}
    for rank, compute_s in ((0, 2.0), (1, 4.0)):
        what = {"purpose": "reduce", "data": Elements("gradient", "b0", 0, 1), "payload_bytes": 150}
        tasks = (
            Load(id=0, chunk=0),
            Forward(id=1, chunk=0, segment=0),
            Send(id=2, peer=1 - rank, tag=0, after=(1,), **what),
            Receive(id=3, peer=1 - rank, tag=0, after=(1,), combine="add", **what),
            OptimizerStep(id=4, after=(3,), gradients=None),
        )
        ranks.append(RankSchedule(rank=rank, segments=(), tasks=tasks, num_events=5))
        seconds |= {(rank, 0): 1.0, (rank, 1): compute_s, (rank, 4): 0.25}
    scenario = Scenario(
        schedule=Schedule(num_chunks=1, ranks=tuple(ranks)),
        task_seconds=seconds,
        cluster=Cluster(nodes=(Node(name="a", cores=2, memory_bytes=1, local=LOCAL, crowding=(1.0, 2.0)),)),
        nodes=("a", "a"),
        threads=(1, 1),
    )
    return what_if(scenario, max(scenario.play().step_s), CAUSES)


def test_as_planned(found):
    # Half speed while both read and compute (until 6 s), then rank 1 alone for 2 s; rank 0 gets its bytes at 10 s.
    assert found["as planned"] == pytest.approx(10.25)


@pytest.mark.parametrize(
    ("variant", "step_s"),
    [
        ("network", 8.5),
        ("latency", 9.75),
        ("input", 8.25),
        ("update", 10.0),
        ("shared cores", 7.25),
        ("peer wait", 10.25),  # 3 s each at half speed: who shares a machine wins nothing by sharing the work otherwise
        ("compute", 4.5),
        ("own input", 10.25),  # both read equally long
        ("bubble", 8.5),  # half speed until rank 0 is through its 3.25 s; nobody sends
    ],
)
def test_each_cause_taken_away(found, variant, step_s):
    assert found[variant] == pytest.approx(step_s)


def test_input_of_one_rank_is_told_from_that_of_all():
    ranks = tuple(RankSchedule(rank=rank, segments=(), tasks=(Load(id=0, chunk=0),), num_events=1) for rank in range(3))
    scenario = Scenario(
        schedule=Schedule(num_chunks=1, ranks=ranks),
        task_seconds={(0, 0): 1.0, (1, 0): 5.0, (2, 0): 2.0},
        cluster=Cluster(nodes=(Node(name="a", cores=3, memory_bytes=1, local=LOCAL),)),
        nodes=("a",) * 3,
        threads=(1,) * 3,
    )
    found = what_if(scenario, 5.0, ("input", "own input"))
    assert (found["own input"], found["input"]) == pytest.approx((2.0, 3.0))


def test_own_cores_under_a_quota_are_the_same_quota_for_each_rank():
    """Seconds were measured under the quota, so a rank alone on its node wins nothing, and one of two wins its wait."""

    def shared(where):
        task = Forward(id=0, chunk=0, segment=0)
        ranks = tuple(RankSchedule(rank=rank, segments=(), tasks=(task,), num_events=1) for rank in range(2))
        names = sorted(set(where))
        scenario = Scenario(
            schedule=Schedule(num_chunks=1, ranks=ranks),
            task_seconds={(0, 0): 40.0, (1, 0): 40.0},
            cluster=Cluster(
                nodes=tuple(
                    Node(name=name, cores=0.25, memory_bytes=1, local=LOCAL, quota_period_s=0.01) for name in names
                )
            ),
            nodes=where,
            threads=(1, 1),
        )
        return what_if(scenario, max(scenario.play().step_s), ("shared cores",))

    alone = shared(("a", "b"))
    assert alone["shared cores"] == pytest.approx(alone["as planned"])
    crowded = shared(("a", "a"))
    assert crowded["as planned"] == pytest.approx(80.0, rel=1e-3)
    assert crowded["shared cores"] == pytest.approx(40.0, rel=1e-3)
