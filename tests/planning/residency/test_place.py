"""Whole plans of every method: nothing is lost, no limit is broken, and what they say is what they do."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scattered import cluster, demand, random_problem

from nfold.core import codec
from nfold.core.residency import ResidencyPlan
from nfold.planning.residency.best_place import LEAST_GAIN, place
from nfold.planning.residency.model.pricing import priced
from nfold.planning.residency.model.problem import problem_of

METHODS = ("auto", "equal", "ilp", "greedy", "lp", "waterfill", "overlap", "joint")
PIS = cluster(
    ("pi2", 6000, 50, 2),
    ("pi3", 30_000, 20, 20),
    ("pi4", 3000, 80, 50, {"num_pinned": 1000}),
    ("desk", 0, 400, 100, {"storage_bytes": 16_000_000}),
)


def placed(nodes, method="auto", **asked):
    return place(problem_of(nodes, demand(**asked), rates={}), method)


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 1 << 30))
def test_no_sample_is_lost_and_no_limit_broken(method, seed):
    problem = random_problem(seed, most_nodes=4)
    plan = place(problem, method, time_limit_s=2.0)
    holds = np.array([node.holds for node in plan.nodes])
    assert holds.sum() == problem.residency.num_samples
    assert (holds >= problem.boxes.least).all()
    assert (holds <= problem.boxes.most).all()
    assert not holds[~problem.can_compute].any(), "who is excluded holds nothing"
    assert all(node.is_member for node in plan.nodes if node.holds), "who holds samples trains on them"


@pytest.mark.parametrize("method", [method for method in METHODS if method != "ilp"])
@given(seed=st.integers(0, 1 << 30))
def test_transfers_lead_from_what_is_held_to_what_shall_be(method, seed):
    plan = place(random_problem(seed), method)
    change = Counter()
    for transfer in plan.transfers:
        assert transfer.num_samples > 0
        change[transfer.source] -= transfer.num_samples
        change[transfer.target] += transfer.num_samples
    assert {node.node: node.holds - node.held for node in plan.nodes if node.holds != node.held} == dict(change)
    busy = {name for transfer in plan.transfers for name in (transfer.source, transfer.target)}
    assert len(plan.transfers) <= max(0, len(busy) - 1)
    assert not {each.source for each in plan.transfers} & {each.target for each in plan.transfers}


@given(seed=st.integers(0, 1 << 30))
def test_auto_is_as_good_as_any_quick_method(seed):
    problem = random_problem(seed)
    chosen = place(problem)
    runs_s = [tried.cost.run_s for tried in chosen.tried if tried.cost is not None]
    assert chosen.cost.run_s <= min(runs_s) / (1 - LEAST_GAIN)
    assert chosen.cost.run_s <= (np.inf if chosen.unmoved is None else chosen.unmoved.run_s)


@pytest.mark.parametrize("method", ["auto", "joint"])
@pytest.mark.parametrize(("held", "moves"), [(104, False), (107, True)])
def test_nothing_moves_for_less_than_predictions_are_off(method, held, moves):
    plan = placed(cluster(("a", held, 10, 1e6), ("b", 200 - held, 10, 1e6)), method)
    assert bool(plan.transfers) is moves


@given(seed=st.integers(0, 1 << 30))
def test_what_is_predicted_is_the_price_of_what_is_held(seed):
    problem = random_problem(seed)
    plan = place(problem, "waterfill")
    assert priced(problem, np.array([float(node.holds) for node in plan.nodes])) == plan.cost


def test_the_plan_survives_its_json_form():
    plan = placed(PIS, gradient_bytes=1e6)
    assert codec.loads(ResidencyPlan, codec.dumps(plan)) == plan


def test_it_explains_itself():
    plan = placed(PIS, gradient_bytes=1e6)
    text = "\n".join(plan.sentences)
    assert "makes 10 epochs" in text
    assert "Move 5.72 MiB (6000 samples) from pi2 to desk: takes 24.0 s, saves" in text
    assert (
        "pi2's link of 2 Mbit/s costs more than it brings: use its data, not its gradients. With them, the run" in text
    )
    assert "The storage of desk is full" in text
    assert plan.members == ("pi4", "desk")
    assert plan.speedup == pytest.approx(plan.unmoved.run_s / plan.cost.run_s)


def test_what_a_transfer_saves_is_what_epochs_take_longer_without_it():
    plan = placed(cluster(("a", 300, 1, 8), ("b", 0, 1, 8), ("c", 0, 1, 8)), "waterfill", epochs=2)
    assert [transfer.num_samples for transfer in plan.transfers] == [100, 100]
    assert [transfer.saves_s for transfer in plan.transfers] == pytest.approx([200, 200])
    assert plan.cost.move_s == pytest.approx(0.2)
    assert [transfer.takes_s for transfer in plan.transfers] == pytest.approx([0.2, 0.2]), "both leave by one link"


def test_nothing_moves_for_next_to_nothing():
    plan = placed(cluster(("a", 1005, 10, 100), ("b", 1000, 10, 100)))
    assert (plan.moving, plan.transfers) == ("nothing", ())
    assert plan.sentences[0].startswith("Nothing should move: 10 epochs would take 16.8 min")


def test_pinned_data_that_all_wait_for_are_named_with_the_time():
    plan = placed(cluster(("a", 6000, 10, 100, {"num_pinned": 6000}), ("b", 0, 90, 100)))
    assert any(
        each == "a must keep 6000 samples and trains on 10.0 in a second: each epoch computes 10.0 min at least, 10.0 "
        "times as long as without that."
        for each in plan.sentences
    )


def test_one_member_updates_and_sends_nothing():
    asked = {"gradient_bytes": 1e6, "batch_size": 10}
    nodes = cluster(("a", 0, 1, 1), ("b", 1000, 1000, 1))
    problem = problem_of(nodes, demand(**asked), rates={}, update_s={"b": 0.1})
    told = place(problem).sentences
    assert any(
        each.startswith("Updates take 91 % of each epoch. A larger batch makes them less often") for each in told
    )
    assert any("instead of 10 makes updates" in each for each in place(problem.with_demand(most_batch=1000)).sentences)


def test_near_nodes_come_first():
    nodes = cluster(
        ("a", 200, 1, 100, {"site": "hall"}),
        ("far", 0, 1, 100),
        ("near", 0, 1, 100, {"site": "hall"}),
    )
    plan = placed(nodes, "waterfill")
    assert (plan.transfers[0].source, plan.transfers[0].target) == ("a", "near")


def test_an_excluded_node_sends_all_that_it_holds():
    problem = problem_of(PIS, demand(), rates={}, excluded=["pi3"])
    plan = place(problem)
    assert plan.nodes[1].holds == 0
    assert plan.unmoved is None
    assert plan.speedup is None
    assert all(each.saves_s is None for each in plan.transfers if each.source == "pi3")
    assert any(sentence.endswith("; pi3 is excluded.") for sentence in plan.sentences)
    assert [tried.note for tried in plan.tried][:1] == ["samples cannot stay where they are"]


def test_a_larger_batch_is_taken_only_where_it_is_allowed():
    asked = {"gradient_bytes": 1e6, "batch_size": 64}
    assert placed(PIS, **asked).batch_size == 64
    allowed = placed(PIS, most_batch=1000, **asked)
    assert allowed.batch_size == 512
    assert any("A batch of 512 instead of 64 sends gradients 8 times less often" in each for each in allowed.sentences)
    assert allowed.unmoved == placed(PIS, gradient_bytes=1e6, batch_size=512).unmoved, "not the batch's gain, too"
    weightless = placed(PIS, most_batch=1000, batch_size=64)
    assert weightless.batch_size == 64, "no larger than it helps"
