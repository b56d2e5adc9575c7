"""What ranks are told of a plan."""

from dataclasses import replace

from coordinated import READY
from pretended import GRAPH, a_plan, cluster, profile_of

from nfold.core.cluster import Channel, Cluster
from nfold.core.job import JobSettings, Known
from nfold.runtime.coordinator.job_planning import JobPlanning, build_orders


def linked(mbit: float) -> Cluster:
    (box,) = cluster().nodes
    fast, slow = (
        Channel(latency_s=0.0, bandwidth_bytes_per_s=rate * 1e6 / 8, origin="measured") for rate in (1000, mbit)
    )
    return Cluster(nodes=(replace(box, uplink=slow, downlink=fast),))


def test_ranks_are_told_how_much_may_wait_before_their_links() -> None:
    known = Known(graph=GRAPH, profiles={1: profile_of(GRAPH)}, cluster=linked(8.0))
    orders = build_orders(known, a_plan(2), 8)
    assert [order.ranks for order in orders] == [(0,), (1,)]
    assert [order.message["unsent_bytes"] for order in orders] == [[10_000, 10_000]] * 2


def test_loaders_that_cores_cannot_keep_busy_are_told_of_before_the_first_step() -> None:
    planning = JobPlanning(JobSettings(workers=2, strategy="ring"))
    few = planning.notes(READY | {"loaders": 1}, replace(a_plan(2), loaders=1), GRAPH)
    (note,) = set(planning.notes(READY | {"loaders": 8}, replace(a_plan(2), loaders=1), GRAPH)) - set(few)
    assert "--loaders 1 does as well" in note
