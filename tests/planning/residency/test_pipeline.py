"""Data of pipelines: all of it at the first stage."""

from itertools import product

import numpy as np
import pytest
from scattered import cluster, demand

from nfold.errors import ClusterError, PlanError
from nfold.planning.residency.best_place import place
from nfold.planning.residency.methods.pipeline import pipeline_optimum
from nfold.planning.residency.model.problem import problem_of
from nfold.planning.residency.model.traffic import Links, Traffic


def asked(*nodes, epochs=10, activations=100):
    """Activations of one sample, in bytes."""
    wish = demand(epochs=epochs, batch_size=100, kind="pipeline", activation_bytes=100.0 * activations)
    return problem_of(cluster(*nodes), wish, rates={})


def best_of_all(problem, *, pairs):
    """The best run over all members and first stages, with or without pairs."""
    boxes, best = problem.boxes, np.inf
    for bits in product([False, True], repeat=len(problem.names)):
        members = np.array(bits)
        if not members.any() or (members.sum() == 2 and not pairs):
            continue
        for first in np.flatnonzero(members):
            others = np.arange(len(bits)) != first
            leaves_s = (boxes.held / boxes.up)[others].max()
            arrives_s = max((boxes.total - boxes.held[first]) / boxes.down[first], leaves_s)
            compute_s = boxes.total / boxes.rate[members].sum()
            sync_s = problem.sync_s(members)
            run_s = max(compute_s, arrives_s) + sync_s + (problem.demand.epochs - 1) * (compute_s + sync_s)
            best = min(best, run_s)
    return best


def test_it_is_the_best_of_all_first_stages_and_members():
    """Two stages pass half as much as more do, so the best pair may be another one than the two best links."""
    for seed in range(30):
        random = np.random.default_rng(seed)
        nodes = [
            (f"n{index}", int(random.integers(0, 3000)), float(random.integers(5, 400)), float(random.integers(1, 100)))
            for index in range(5)
        ]
        problem = asked(*nodes, activations=int(random.choice([10, 1000, 20_000])))
        found = pipeline_optimum(problem).cost.run_s
        assert best_of_all(problem, pairs=True) * (1 - 1e-9) <= found, f"seed {seed}"
        assert found <= best_of_all(problem, pairs=False) * (1 + 1e-9), f"seed {seed}"


def test_inner_stages_send_both_ways():
    links = Links(np.array([10.0, 20, 40]), np.array([10.0, 20, 40]), *np.zeros((3, 3)))
    traffic = Traffic(kind="pipeline", activation_bytes=100)
    assert traffic.sync_s(links, np.array([True, True, True])) == pytest.approx(2 * 100 / 10)
    assert traffic.sync_s(links, np.array([False, True, True])) == pytest.approx(100 / 20)
    assert traffic.link_bytes(links, np.array([True, True, False])).tolist() == [100, 100, 0]


def test_everything_goes_to_the_first_stage_and_all_compute():
    plan = place(asked(("a", 100, 10, 80), ("b", 900, 30, 80), ("c", 0, 60, 80)))
    assert [node.holds for node in plan.nodes] == [0, 1000, 0], "most of it is there"
    assert [node.share for node in plan.nodes] == pytest.approx([0.1, 0.3, 0.6])
    assert [node.computes_s for node in plan.nodes] == pytest.approx([10, 10, 10])
    assert plan.moving == "while training"
    assert [(each.source, each.target, each.num_samples) for each in plan.transfers] == [("a", "b", 100)]


def test_a_slow_link_passes_on_no_activations():
    plan = place(asked(("slow", 500, 10, 1), ("b", 900, 30, 80), ("c", 0, 60, 80), activations=10_000))
    assert plan.members == ("b", "c")
    assert "slow's link of 1 Mbit/s costs more than it brings: use its data, not its computing." in plan.sentences


def test_what_stays_is_fetched_in_each_epoch():
    problem = asked(("far", 1000, 1, 1), ("b", 0, 100, 1), epochs=5, activations=10_000)
    plan = place(problem)
    assert plan.members == ("b",)
    assert plan.cost.run_s == pytest.approx(10 + 4 * 10)
    slower = place(asked(("far", 1000, 1, 0.1), ("b", 0, 100, 1), epochs=5, activations=10_000))
    assert (slower.cost.run_s, slower.unmoved.run_s) == pytest.approx((80 + 4 * 10, 5 * 80))


@pytest.mark.parametrize("limit", [{"num_pinned": 1}, {"storage_bytes": 15_000}])
def test_where_no_node_can_hold_all_of_it_a_pipeline_is_refused(limit):
    with pytest.raises(ClusterError, match="a pipeline takes all 20 samples in at one node, and none can hold them"):
        place(asked(("a", 10, 1, 8, limit), ("b", 10, 1, 8, limit)))


def test_ways_that_divide_samples_know_no_pipeline():
    with pytest.raises(PlanError, match="method waterfill divides samples among nodes that all have the whole model"):
        place(asked(("a", 10, 1, 8)), "waterfill")


def test_pinned_data_of_a_slow_node_hold_no_pipeline_up():
    """All nodes train on what it keeps, however long it would take alone."""
    slow = ("slow", 1000, 1e-5, 100, {"num_pinned": 1000})
    plan = place(asked(slow, ("a", 0, 100, 100), ("b", 0, 100, 100)))
    assert not any("must keep" in sentence for sentence in plan.sentences)
