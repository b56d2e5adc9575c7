"""How much of a rank's messages may wait on the way to its peers."""

from dataclasses import replace

import pytest
from pretended import cluster

from nfold.core.cluster import Channel, Cluster
from nfold.runtime.measuring.unsent_bytes import lift_limits, limit_unsent, unsent_bytes


class Told:
    rank, world_size = 1, 5

    def __init__(self) -> None:
        self.limits: dict[int, int | None] = {}

    def limit_unsent(self, peer: int, num_bytes: int | None) -> None:
        self.limits[peer] = num_bytes


def test_what_waits_for_a_peer_is_what_the_own_uplink_carries_but_for_those_on_the_node() -> None:
    told = Told()
    limit_unsent(told, ("a", "b", "b", "c"), (100, 200, 200, 300))
    assert told.limits == {0: 200, 2: None, 3: 200}
    limit_unsent(told, ("b", "b", "b", "b"), (None,) * 4)
    assert told.limits == dict.fromkeys((0, 2, 3))


def test_nothing_is_limited_once_a_plan_is_over() -> None:
    told = Told()
    limit_unsent(told, ("a", "b", "c", "d"), (100,) * 4)
    lift_limits(told)
    assert told.limits == dict.fromkeys((0, 2, 3, 4))


@pytest.mark.parametrize(
    ("cores", "period_s", "moment_s"),
    [(0.5, 0.0, 0.01), (0.5, 0.1, 0.1), (0.5, 0.002, 0.01), (2.0, 0.1, 0.01)],
)
def test_a_link_has_enough_to_carry_while_its_node_waits_for_the_next_grant(
    cores: float, period_s: float, moment_s: float
) -> None:
    (box,) = cluster().nodes
    uplink = Channel(latency_s=0.0, bandwidth_bytes_per_s=10e6, origin="measured")
    node = replace(box, cores=cores, quota_period_s=period_s, uplink=uplink)
    assert unsent_bytes(Cluster(nodes=(node,)), [node.name] * 2) == [int(10e6 * moment_s)] * 2


def test_one_node_has_no_link() -> None:
    assert unsent_bytes(cluster(), ["box"]) == [None]
