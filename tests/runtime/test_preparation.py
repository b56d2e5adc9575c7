"""What is refused once a plan is made."""

from dataclasses import replace

import pytest
from pretended import GRAPH, a_plan, cluster, profile_of

from nfold.core.cluster import Channel, Cluster
from nfold.errors import PlanError
from nfold.planning.foretold import check_first_step
from nfold.runtime import events as ev
from nfold.runtime.preparation import build_order


def linked(mbit: float) -> Cluster:
    (box,) = cluster().nodes
    fast, slow = (
        Channel(latency_s=0.0, bandwidth_bytes_per_s=rate * 1e6 / 8, origin="measured") for rate in (1000, mbit)
    )
    return Cluster(nodes=(replace(box, uplink=slow, downlink=fast),))


def test_a_step_that_nobody_would_live_to_see_is_refused_with_the_link_that_is_to_blame() -> None:
    plan = a_plan(2)
    slow = replace(plan, predicted=replace(plan.predicted, step_s=4000.0, sent_bytes_per_step=64_000_000))
    with pytest.raises(PlanError) as refused:
        check_first_step(slow, linked(0.25), 300.0)
    text = str(refused.value)
    for part in (
        "about 4000 s",
        "the 300 s allowed",
        "64.0 MB",
        "box's uplink moves 0.25 Mbit/s",
        "--first-step-within",
    ):
        assert part in text


def test_a_step_within_the_limit_is_no_reason() -> None:
    check_first_step(a_plan(2), linked(0.25), 300.0)


def test_ranks_are_told_how_much_may_wait_before_their_links() -> None:
    known = ev.Known(graph=GRAPH, profiles={1: profile_of(GRAPH)}, cluster=linked(8.0))
    assert build_order(known, a_plan(2), 8)["unsent_bytes"] == [10_000, 10_000]
