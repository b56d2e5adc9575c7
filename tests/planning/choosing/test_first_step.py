"""A first step that nobody would live to see is refused, with what would be quick enough."""

import re
from dataclasses import replace

import pytest
from grids import chain, facts
from test_advice import advised, obey

from nfold.core.cluster import Channel, Cluster
from nfold.errors import PlanError
from nfold.planning.choosing.first_step import check_first_step, first_step_notes
from nfold.planning.choosing.search import possible_plan

GRAPH = chain(100_000, 100_000, 100_000)
LIMIT_S = 3.0


def slow(names, *, workers=3, graph=GRAPH):
    """Three nodes, some of which have links of 0.1 Mbit/s: a ring's step takes minutes."""
    asked = facts(graph, workers)
    (node,) = asked.cluster.nodes
    nodes = []
    for name in ("n0", "n1", "n2"):
        link = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e4 if name in names else 1e8, origin="measured")
        nodes.append(replace(node, name=name, uplink=link, downlink=link))
    return replace(asked, cluster=Cluster(nodes=tuple(nodes)), nodes=("n0", "n1", "n2")[:workers])


def refusal(asked, strategy, limit_s=LIMIT_S):
    chosen = possible_plan(asked, strategy)
    with pytest.raises(PlanError) as caught:
        check_first_step(asked, strategy, chosen, limit_s)
    return str(caught.value)


@pytest.mark.parametrize("strategy", ["ring", "ps"])
@pytest.mark.parametrize("names", [("n2",), pytest.param(("n0",), marks=pytest.mark.exhaustive), ("n0", "n1", "n2")])
@pytest.mark.parametrize("indivisible", ["", "its loss is of a batch"])
def test_whatever_is_advised_is_quick_enough(strategy, names, indivisible):
    asked = slow(names, graph=replace(GRAPH, indivisible=indivisible))
    chosen = possible_plan(asked, strategy)
    if chosen is None:
        return  # refused for another reason
    if chosen.predicted.step_s <= LIMIT_S:
        check_first_step(asked, strategy, chosen, LIMIT_S)
        return
    message = refusal(asked, strategy)
    for change in advised(message):
        obey(asked, strategy, change)
        found = possible_plan(change.of(asked), change.strategy or strategy)
        check_first_step(change.of(asked), change.strategy or strategy, found, LIMIT_S)
    (allowed,) = re.findall(r"--first-step-within (\d+)", message)
    check_first_step(asked, strategy, chosen, float(allowed))


def test_the_slow_node_is_named_and_left_out_where_that_is_enough():
    message = refusal(slow(("n2",)), "ring")
    assert "n2's uplink moves 0.08 Mbit/s" in message or "n2's downlink moves 0.08 Mbit/s" in message
    assert "Leave n2 out of the cluster." in message
    assert "-n 2" in {change.flags for change in advised(message)}
    assert "Leave" not in refusal(slow(("n1", "n2")), "ring"), "the other one is as slow"


def test_nothing_is_advised_that_is_as_slow():
    one = slow(("n0",), workers=2)
    message = refusal(one, "ring", 1e-6)
    assert advised(message) == []
    assert re.search(r"Or allow it: --first-step-within \d+\.$", message)


def test_a_plan_that_is_only_looked_at_says_how_train_would_take_it():
    chosen = possible_plan(slow(("n2",)), "ring")
    (note,) = first_step_notes(chosen, LIMIT_S)
    assert re.search(r"unless --first-step-within \d+ allows it", note)
    assert first_step_notes(chosen, chosen.predicted.step_s) == ()
