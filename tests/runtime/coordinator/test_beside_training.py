"""How fast samples may move beside gradients."""

from dataclasses import replace

import pytest
from pretended import GRAPH, a_plan, cluster, profile_of

from nfold.core.cluster import Channel, Cluster
from nfold.core.job import Known
from nfold.core.residency import SampleMove
from nfold.runtime.coordinator.placing.beside_training import LEAST_IDLE, idle_rates

NAMES = ("a", "b", "c")
TO_C = [SampleMove(source=source, target=2, spans=((0, 1),), epoch=0) for source in (0, 1)]


def rates(*links, moves=TO_C, strategy="ring", step_s=1e9):
    channels = [
        tuple(each and Channel(latency_s=0.0, bandwidth_bytes_per_s=each, origin="declared") for each in pair)
        for pair in links
    ]
    nodes = tuple(
        replace(node, uplink=up, downlink=down)
        for node, (up, down) in zip(cluster(*NAMES).nodes, channels, strict=True)
    )
    known = Known(graph=GRAPH, profiles={1: profile_of(GRAPH)}, cluster=Cluster(nodes=nodes))
    plan = a_plan(3)
    plan = replace(plan, nodes=NAMES, strategy=strategy, predicted=replace(plan.predicted, step_s=step_s))
    return idle_rates(known, plan, (0, 1, 2), moves)


def test_who_send_to_one_node_share_its_downlink():
    assert rates((100.0, 100.0), (10.0, 100.0), (100.0, 60.0)) == pytest.approx([30.0, 10.0, 100.0])


def test_links_that_nobody_limits_do_not_limit():
    assert rates((None, None), (None, None), (None, None)) == [None] * 3
    assert rates((None, None), (None, None), (None, 60.0)) == pytest.approx([30.0, 30.0, None])


@pytest.mark.parametrize(("strategy", "busy"), [("ring", (4 / 3, 4 / 3, 4 / 3)), ("ps", (1.0, 1.0, 2.0))])
def test_gradients_leave_what_their_plan_does_not_use(strategy, busy):
    link, step_s = 10.0 * GRAPH.parameter_bytes, 1.0
    found = rates((link, link), (link, link), (2 * link, 2 * link), moves=[], strategy=strategy, step_s=step_s)
    assert found == pytest.approx(
        [each - of * GRAPH.parameter_bytes for each, of in zip((link, link, 2 * link), busy, strict=True)]
    )


def test_a_link_that_gradients_fill_still_moves_a_little():
    assert rates((100.0, 100.0), (100.0, 100.0), (100.0, 100.0), moves=[], step_s=1e-9) == pytest.approx(
        [LEAST_IDLE * 100.0] * 3
    )
