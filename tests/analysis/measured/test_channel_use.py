"""When the network counts as in use, and who shares which channel."""

from dataclasses import replace

import pytest

from nfold.analysis.measured.channel_use import channel_uses, network_in_use_s
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


def use_of(two_nodes, place, *spans, is_cut=False, begin_s=()):
    """What a link did in one step."""
    plan, cluster = two_nodes
    if is_cut:
        plan = replace(plan, placement=replace(plan.placement, owners={"op": (0, 0), "other": (1, 1)}))
    traced = replace(step(*spans), begin_s=begin_s)
    uses = channel_uses(plan, Trace(parts=(), steps=(traced,), usage=()), cluster)
    (found,) = [use for use in uses if use.place == place]
    assert found.wire_bytes_per_s * found.busy_share * found.in_use_s == pytest.approx(found.bytes_per_step)
    assert 0 <= found.busy_share <= 1
    return found


def taken_at_once(size, *starts_s):
    """Sends of rank 0 that the kernel takes as soon as they begin."""
    return [span(0, "SEND", at, at + 1e-4, 1, size) for at in starts_s]


def come_at(*ends_s, rank=1):
    return [span(rank, "RECV", 0.0, at, 1 - rank, 0) for at in ends_s]


def test_a_link_that_shows_no_speed_has_the_one_that_it_was_probed_with(two_nodes):
    # Two messages of 50 ms each at 1 MB/s in a second; the answers tell that the second was one of use.
    answers = [span(1, "SEND", 0.0, 0.5, 0, 10), span(1, "SEND", 0.5, 1.0, 0, 10), *come_at(0.5, 1.0, rank=0)]
    uplink = use_of(two_nodes, "a uplink", *taken_at_once(50_000, 0.0, 0.5), *come_at(0.05, 0.55), *answers)
    assert not uplink.is_seen
    assert uplink.speed_bytes_per_s == 1e6, "neither a second for its bytes, nor a fifth of a millisecond"
    assert uplink.busy_share == pytest.approx(0.1, rel=0.01)
    assert uplink.utilisation == pytest.approx(0.1, rel=0.01), "of what it can, that much it surely moved"


def test_bytes_that_need_more_than_the_known_speed_prove_it(two_nodes):
    answers = [span(1, "SEND", 0.4, 0.8, 0, 10), *come_at(0.8, rank=0)]
    uplink = use_of(two_nodes, "a uplink", *taken_at_once(1_000_000, 0.0, 0.3), *come_at(0.4, 0.7), *answers)
    assert uplink.is_seen
    assert uplink.speed_bytes_per_s == pytest.approx(2_000_000 / 0.8, rel=1e-3), "all had come before the answer"


def test_a_send_that_the_link_holds_up_shows_its_speed(two_nodes):
    sends = [span(0, "SEND", 0.0, 0.4, 1, 200_000), span(0, "SEND", 0.6, 1.0, 1, 200_000)]
    uplink = use_of(two_nodes, "a uplink", *sends, *come_at(0.4, 1.0))
    assert (uplink.is_seen, uplink.speed_bytes_per_s) == (True, pytest.approx(0.5e6))
    assert uplink.busy_share == pytest.approx(1.0)


@pytest.mark.parametrize("is_cut", [False, True])
def test_chunks_that_come_as_fast_as_they_are_computed_make_no_link_slow(two_nodes, is_cut):
    """Eight of 20 ms each on the link, one every 100 ms."""
    starts_s = [index / 10 for index in range(8)]
    messages = [*taken_at_once(20_000, *starts_s), *come_at(*(at + 0.02 for at in starts_s))]
    for place in ("a uplink", "b downlink"):
        use = use_of(two_nodes, place, *messages, is_cut=is_cut)
        if is_cut:
            assert (use.is_seen, use.speed_bytes_per_s) == (False, 1e6)
            assert use.busy_s == pytest.approx(0.16)
        else:  # the next message of a sum waits for the one before to come, so they follow as fast as links carry them
            assert (use.is_seen, use.speed_bytes_per_s) == (True, pytest.approx(0.22e6, rel=0.15))


def test_a_cut_model_shows_a_link_that_holds_its_chunks_up(two_nodes):
    ends_s = [0.1 * index for index in range(1, 9)]
    sends = [span(0, "SEND", 0.0, at, 1, 50_000) for at in ends_s]
    use = use_of(two_nodes, "a uplink", *sends, *come_at(*ends_s), is_cut=True)
    assert (use.is_seen, use.speed_bytes_per_s) == (True, pytest.approx(0.5e6, rel=0.01))


def test_bursts_are_told_from_pauses(two_nodes):
    """Two buckets of ten messages, 10 ms each, half a second apart."""
    ends_s = [begin_s + 0.01 * index for begin_s in (0.0, 0.6) for index in range(1, 11)]
    sends = [span(0, "SEND", begin_s, begin_s + 0.1, 1, 50_000) for begin_s in (0.0, 0.6)]
    use = use_of(two_nodes, "a uplink", *sends, *[replace(each, payload_bytes=5_000) for each in come_at(*ends_s)])
    assert use.speed_bytes_per_s == pytest.approx(0.5e6, rel=0.1)
    assert use.busy_share > 0.25


def test_ranks_of_one_node_use_its_link_in_turns(run):
    """Each for half a second, on a clock that they share: the link is in use for a second, and no faster than it is."""
    nodes = tuple(
        Node(name=name, cores=2, memory_bytes=1, local=WIRE, uplink=WIRE, downlink=WIRE) for name in ("a", "b")
    )
    plan = replace(run(workers=4).plan(), nodes=("a", "a", "b", "b"))
    spans = [
        each
        for rank in (0, 1)
        for each in (span(rank, "SEND", 0.0, 0.5, rank + 2, 500_000), span(rank + 2, "RECV", 0.0, 0.5, rank, 0))
    ]
    traced = replace(step(*spans), step_s=(1.0,) * 4, begin_s=(7.0, 7.5, 3.0, 3.5))
    uses = channel_uses(plan, Trace(parts=(), steps=(traced,), usage=()), Cluster(nodes=nodes))
    (uplink,) = [use for use in uses if use.place == "a uplink"]
    assert uplink.in_use_s == pytest.approx(1.0)
    assert uplink.speed_bytes_per_s == pytest.approx(1e6)
    assert uplink.busy_share == pytest.approx(1.0)


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
