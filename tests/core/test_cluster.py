"""Machines: what they refuse to be, and how cores are shared."""

import pytest

from nfold.core.cluster import Channel, Cluster, Node
from nfold.errors import ClusterError

WIRE = Channel(latency_s=0.5, bandwidth_bytes_per_s=100.0, origin="declared")


def node(name="a", cores=4.0, **fields):
    return Node(name=name, cores=cores, memory_bytes=1, local=WIRE, **fields)


def test_a_message_costs_latency_and_bytes():
    assert WIRE.seconds(200) == 2.5
    assert WIRE.seconds(0) == 0.5


@pytest.mark.parametrize(
    ("latency_s", "bandwidth"), [(0.0, 0.0), (0.0, -1.0), (-0.1, 1.0), (float("nan"), 1.0), (0.0, float("nan"))]
)
def test_a_channel_that_cannot_be_is_refused(latency_s, bandwidth):
    with pytest.raises(ClusterError, match="needs a positive bandwidth and a latency of at least 0"):
        Channel(latency_s=latency_s, bandwidth_bytes_per_s=bandwidth, origin="declared")


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_a_node_that_computes_nothing_is_refused(speed):
    with pytest.raises(ClusterError, match=r"node a has a speed of .*, so nothing that runs there would ever end"):
        node(speed=speed)


def test_node_names_must_differ():
    with pytest.raises(ClusterError, match="two nodes are called 'b': node names must differ"):
        Cluster(nodes=(node("a"), node("b"), node("b")))


def test_a_cluster_has_a_node():
    with pytest.raises(ClusterError, match="at least one node") as caught:
        Cluster(nodes=())
    assert isinstance(caught.value, ValueError)


def test_an_unknown_node_is_answered_with_those_that_there_are():
    cluster = Cluster(nodes=(node("a"), node("b")))
    assert cluster.node("b").name == "b"
    with pytest.raises(ClusterError, match="no node is called 'c'; the cluster has a, b"):
        cluster.node("c")


@pytest.mark.parametrize(("busy", "slowdown"), [(0.0, 1.0), (1.0, 1.0), (4.0, 1.0), (6.0, 1.5), (8.0, 2.0)])
def test_cores_are_shared_fairly(busy, slowdown):
    assert node().slowdown(busy) == slowdown


def test_busy_cores_slow_each_other_down():
    crowded = node(cores=2.0, crowding=(1.0, 1.25))
    assert crowded.slowdown(1) == 1.0
    assert crowded.slowdown(2) == 1.25
    assert crowded.slowdown(4) == 2.5, "two cores' crowding, and half a core each"


def test_more_busy_ranks_are_never_faster():
    found = [node(cores=3.0, crowding=(1.0, 1.1, 1.4)).slowdown(busy / 4) for busy in range(40)]
    assert found == sorted(found)
