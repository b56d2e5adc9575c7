"""What ranks are told of a plan."""

from dataclasses import replace

from pretended import GRAPH, a_plan, cluster, profile_of

from nfold.core.cluster import Channel, Cluster
from nfold.runtime.preparation import build_orders
from nfold.runtime.settings import Known


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
