"""When the network counts as in use, and who shares which channel."""

from dataclasses import replace

import pytest

from nfold.analysis.network import channel_uses, network_in_use_s
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.trace import Span, StepTrace, Trace

WIRE = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e6, origin="measured")


def span(rank, kind, start, end, peer, size):
    return Span(rank=rank, kind=kind, name="m", start_s=start, end_s=end, peer=peer, payload_bytes=size)


def step(*spans):
    return StepTrace(step=0, origin="simulated", step_s=(1.0, 1.0), spans=spans)


@pytest.fixture
def two_nodes(run):
    nodes = tuple(
        Node(name=name, cores=2, memory_bytes=1, local=WIRE, uplink=WIRE, downlink=WIRE) for name in ("a", "b")
    )
    return replace(run().plan(), nodes=("a", "b")), Cluster(nodes=nodes)


def test_a_receive_posted_early_does_not_count_before_the_first_send(two_nodes):
    plan, cluster = two_nodes
    spans = (span(0, "RECV", 0.0, 1.0, 1, 10), span(0, "SEND", 0.6, 0.8, 1, 10))
    assert network_in_use_s(step(*spans), 0, plan, cluster) == pytest.approx(0.4)


def test_who_only_receives_counts_from_when_the_bytes_can_have_left(two_nodes):
    plan, cluster = two_nodes
    assert network_in_use_s(step(span(0, "RECV", 0.0, 1.0, 1, 250_000)), 0, plan, cluster) == pytest.approx(0.25)


def test_gaps_do_not_count(two_nodes):
    plan, cluster = two_nodes
    spans = (span(0, "SEND", 0.0, 0.1, 1, 10), span(0, "SEND", 0.05, 0.2, 1, 10), span(0, "SEND", 0.5, 0.6, 1, 10))
    assert network_in_use_s(step(*spans), 0, plan, cluster) == pytest.approx(0.3)


def test_the_fullest_channel_comes_first(two_nodes):
    plan, cluster = two_nodes
    # An idle link of 1 MB/s brings 450 kB in 0.45 s, so b's may have been idle until then.
    spans = (span(0, "SEND", 0.0, 0.5, 1, 450_000), span(1, "RECV", 0.0, 0.5, 0, 450_000))
    uses = channel_uses(plan, Trace(parts=(), steps=(step(*spans),), usage=()), cluster)
    assert [(use.place, round(use.utilisation, 3)) for use in uses] == [("b downlink", 1.0), ("a uplink", 0.9)]


def test_messages_that_the_kernel_takes_at_once_say_nothing_of_an_uplink(two_nodes):
    plan, cluster = two_nodes
    # Two sends that end as soon as they began; what they brought has come after a second.
    sends = (span(0, "SEND", 0.0, 1e-4, 1, 50_000), span(0, "SEND", 0.5, 0.5001, 1, 50_000))
    answers = (span(0, "RECV", 0.0, 0.5, 1, 0), span(0, "RECV", 0.5, 1.0, 1, 0))
    uses = channel_uses(plan, Trace(parts=(), steps=(step(*sends, *answers),), usage=()), cluster)
    (uplink,) = [use for use in uses if use.place == "a uplink"]
    assert uplink.speed_bytes_per_s == pytest.approx(100_000), "a second in use, not a fifth of a millisecond"


def downlink_speed(two_nodes, num_bytes, arrivals_s):
    """Of b, to which a sends equal messages for a second."""
    plan, cluster = two_nodes
    size = num_bytes // len(arrivals_s)
    sends = [span(0, "SEND", 0.0, at, 1, size) for at in arrivals_s]
    receives = [span(1, "RECV", 0.0, at, 0, 0) for at in arrivals_s]
    uses = channel_uses(plan, Trace(parts=(), steps=(step(*sends, *receives),), usage=()), cluster)
    (downlink,) = [use for use in uses if use.place == "b downlink"]
    return downlink.speed_bytes_per_s


def test_messages_that_end_together_make_no_link_faster_than_it_was_measured(two_nodes):
    ends_s = (0.3, 0.55, 0.56, 0.57, 0.58, 0.59, 0.6, 0.61, 0.95, 1.0)
    assert downlink_speed(two_nodes, 700_000, ends_s) == 1e6
    assert downlink_speed(two_nodes, 1_800_000, ends_s) >= 1.8e6, "so much did come in a second"
    slow = tuple(2 * index / 10 for index in range(1, 11))
    assert downlink_speed(two_nodes, 900_000, slow) == pytest.approx(0.45e6, rel=0.01)
