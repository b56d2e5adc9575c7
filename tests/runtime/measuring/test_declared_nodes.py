"""What a node that joins is planned with before it is measured."""

from dataclasses import replace

import pytest

from nfold.core.cluster import Channel, Cluster, Node
from nfold.runtime.measuring.declared_nodes import as_if_measured

LOCAL = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e9, origin="declared")


def declared(bytes_per_s: float) -> Channel:
    return Channel(latency_s=0.01, bandwidth_bytes_per_s=bytes_per_s, origin="declared")


def probed(bytes_per_s: float, declared_bytes_per_s: float | None) -> Channel:
    return Channel(
        latency_s=0.01, bandwidth_bytes_per_s=bytes_per_s, origin="measured", cpu_s_per_byte=1e-9,
        declared_bytes_per_s=declared_bytes_per_s,
    )  # fmt: skip


def node(name: str, cores: float, link: Channel | None, **other) -> Node:
    return Node(
        name=name, cores=cores, memory_bytes=1 << 30, local=LOCAL, uplink=link, downlink=link, quota_period_s=0.01,
        **other,
    )  # fmt: skip


MEASURED = [
    node("a", 1.0, probed(9e6, 1e7), speed=0.9, crowding=(1.0, 1.2), step_cpu_s=1e-3),
    node("b", 0.5, probed(4.5e6, 5e6), speed=0.45),
]


def test_an_emulated_node_is_as_good_as_what_is_declared_of_it():
    found = as_if_measured(Cluster(nodes=tuple(MEASURED), is_emulated=True), node("c", 0.25, declared(2e7)))
    assert found.speed == pytest.approx(0.225), "a core of it is as fast as theirs"
    assert found.uplink is not None
    assert found.uplink.bandwidth_bytes_per_s == pytest.approx(1.8e7)
    assert (found.uplink.origin, found.uplink.declared_bytes_per_s, found.uplink.cpu_s_per_byte) == (
        "measured", 2e7, 1e-9,
    )  # fmt: skip
    assert (found.crowding, found.step_cpu_s) == ((1.0, 1.2), 1e-3)


def test_links_that_nobody_declared_are_like_the_fastest():
    free = [replace(each, uplink=probed(speed, None)) for each, speed in zip(MEASURED, (3e8, 2e8), strict=True)]
    found = as_if_measured(Cluster(nodes=tuple(free), is_emulated=True), node("c", 1.0, None))
    assert found.uplink == probed(3e8, None)


def test_a_host_is_measured_later():
    found = as_if_measured(Cluster(nodes=tuple(MEASURED)), node("c", 4.0, None))
    assert (found.speed, found.uplink, found.crowding) == (1.0, None, (1.0, 1.2))
