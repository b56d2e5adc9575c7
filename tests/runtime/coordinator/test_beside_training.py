"""How fast samples may move beside gradients."""

from dataclasses import replace

import pytest
from pretended import GRAPH, a_plan, cluster, profile_of

from nfold.core.cluster import Channel, Cluster
from nfold.core.job import Known
from nfold.core.residency import SampleMove
from nfold.planning.residency.model.pieces import LINK_SHARE, piece_bytes_on
from nfold.runtime.coordinator.placing.beside_training import LEAST_QUIET_S, QUIET_MESSAGES, paces
from nfold.runtime.measuring.unsent_bytes import MOMENT_S

NAMES = ("a", "b", "c")
TO_C = [SampleMove(source=source, target=2, spans=((0, 1),), epoch=0) for source in (0, 1)]


def links(*pairs, moves=TO_C, strategy="ring"):
    channels = [
        tuple(each and Channel(latency_s=0.0, bandwidth_bytes_per_s=each, origin="declared") for each in pair)
        for pair in pairs
    ]
    nodes = tuple(
        replace(node, uplink=up, downlink=down)
        for node, (up, down) in zip(cluster(*NAMES).nodes, channels, strict=True)
    )
    known = Known(graph=GRAPH, profiles={1: profile_of(GRAPH)}, cluster=Cluster(nodes=nodes))
    return paces(known, replace(a_plan(3), nodes=NAMES, strategy=strategy), (0, 1, 2), moves)


def rates(*pairs, **changes):
    return [each.move_bytes_per_s for each in links(*pairs, **changes)]


def test_who_send_to_one_node_share_its_downlink():
    found = rates((100.0, 100.0), (10.0, 100.0), (100.0, 60.0))
    assert found == pytest.approx([LINK_SHARE * each for each in (30.0, 10.0, 100.0)])


def test_links_that_nobody_limits_do_not_limit():
    assert rates((None, None), (None, None), (None, None)) == [None] * 3
    found = rates((None, None), (None, None), (None, 60.0))
    assert found == pytest.approx([LINK_SHARE * 30.0, LINK_SHARE * 30.0, None])


@pytest.mark.parametrize(("strategy", "message_s"), [("ring", 1 / 3), ("ps", 1.0)])
def test_an_exchange_stands_still_after_longer_than_its_slowest_message_takes(strategy, message_s):
    link = float(GRAPH.parameter_bytes)
    pairs = ((link, link), (9 * link, 9 * link), (2 * link, 2 * link))
    quiet_s = [each.quiet_s for each in links(*pairs, strategy=strategy)]
    whole_bytes_s = 1 / link
    assert quiet_s == pytest.approx(
        [QUIET_MESSAGES * message_s + MOMENT_S + LEAST_QUIET_S] * 3, rel=0, abs=whole_bytes_s
    )


def test_what_a_link_carries_in_a_moment_may_be_handed_over():
    pace = links((1e6, 1e6), (1e6, 1e6), (1e6, 1e6))[0]
    assert pace.ahead_bytes + piece_bytes_on(pace.link_bytes_per_s) == MOMENT_S * 1e6
    assert pace.settle_s == MOMENT_S
