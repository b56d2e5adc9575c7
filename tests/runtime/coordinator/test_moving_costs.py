"""What moving samples costs processors decides how fast links are, and what training on moved samples takes."""

from dataclasses import replace

import pytest

from nfold.core.cluster import Channel, Node
from nfold.core.text.cluster_file import LOCAL
from nfold.planning.residency.node_inventory import SampleCosts
from nfold.runtime.coordinator.placing.question import handling_of

COSTS = SampleCosts(send_s=1.0, keep_s=2.0, read_s=3.0)
LINK = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e6, origin="declared")
NODES = tuple(
    Node(name=name, cores=1.0, memory_bytes=1 << 30, local=LOCAL, uplink=LINK, downlink=LINK) for name in ("a", "b")
)


def test_a_part_of_a_core_takes_so_many_times_as_long_and_who_had_no_samples_is_like_the_others():
    slow = [replace(NODES[0], cores=0.5), NODES[1]]
    found = handling_of(slow, [COSTS, None], 1000.0)
    assert [(each.send_s, each.take_s, each.read_s) for each in found] == [(2.0, 4.0, 6.0), (1.0, 2.0, 3.0)]


def test_messages_count_for_their_bytes_and_their_number():
    link = replace(LINK, cpu_s_per_byte=2e-3, cpu_s_per_message=200.0)  # pieces of 5 ms are 5 kB
    found = handling_of([replace(NODES[0], uplink=link, downlink=None)], [COSTS], 1000.0)[0]
    assert found.send_s == pytest.approx(1.0 + 1.0 + 100.0 / 5)
    assert found.take_s == 2.0


def test_where_nobody_has_measured_moving_costs_nothing():
    assert [each.send_s for each in handling_of(NODES, [None, None], 1000.0)] == [0.0, 0.0]
