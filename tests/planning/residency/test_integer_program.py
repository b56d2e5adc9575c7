"""The integer program of independent links, against every way to move a few samples."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from scattered import boxes, cluster, demand

from nfold.errors import PlanError
from nfold.planning.residency.best_place import place
from nfold.planning.residency.methods.integer_program import integer_optimum
from nfold.planning.residency.model.problem import problem_of


def best_by_trying(asked, epochs):
    """Least time over all whole numbers of samples between three nodes."""
    ways = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    best = np.inf
    for moved in product(*(range(int(asked.held[source]) + 1) for source, _ in ways)):
        sent, taken, arrives_s = np.zeros(3), np.zeros(3), np.zeros(3)
        for (source, target), count in zip(ways, moved, strict=True):
            sent[source] += count
            taken[target] += count
            arrives_s[target] += count / min(asked.up[source], asked.down[target])
        holds = asked.held - sent + taken
        if (sent <= asked.held - asked.least).all() and (holds <= asked.most).all():
            best = min(best, float((arrives_s + epochs * holds / asked.rate).max()))
    return best


@pytest.mark.parametrize("epochs", [1, 10])
def test_it_is_the_best_of_all_ways(epochs):
    asked = boxes(held=[5, 2, 1], rate=[1, 2, 3], up=[2, 1, 3], down=[1, 3, 2], least=[1, 0, 0], most=[9, 9, 3])
    assert integer_optimum(asked, epochs, 10).promised_s == pytest.approx(best_by_trying(asked, epochs))


def test_it_promises_what_shared_links_do_not_deliver():
    """One node sends to eight at once, as if it had a link to each."""
    nodes = cluster(("full", 8000, 100, 1), *((f"n{index}", 0, 100, 100) for index in range(8)))
    plan = place(problem_of(nodes, demand(epochs=1), rates={}), "ilp")
    assert plan.promised_s < 0.6 * plan.cost.run_s
    assert any("takes the links between all pairs for independent" in sentence for sentence in plan.sentences)


def test_pins_storage_and_exclusion_that_leave_no_way_are_told():
    asked = boxes(held=[10, 10], rate=[0, 1], up=[1, 1], most=[20, 15])
    with pytest.raises(PlanError, match=r"2 nodes and 1 whole number has no answer: pinned data, storage and excluded"):
        integer_optimum(asked, 1, 10)


@pytest.fixture
def stopped(monkeypatch):
    """Let the solver be stopped with some answer."""

    def stop(x):
        answer = SimpleNamespace(status=1, mip_gap=0.03, x=x, message="time limit reached")
        monkeypatch.setattr("scipy.optimize.milp", lambda **_: answer)

    return stop


def test_a_solver_out_of_time_gives_its_best_with_the_gap(stopped):
    stopped(np.array([400.0, 60.0]))
    nodes = cluster(("a", 1000, 10, 100), ("b", 0, 10, 100))
    plan = place(problem_of(nodes, demand(epochs=1), rates={}), "ilp", time_limit_s=2)
    assert [node.holds for node in plan.nodes] == [600, 400]
    assert plan.gap == 0.03
    assert "The solver was stopped: by its own model, its plan is at most 3 % from the best one." in plan.sentences


def test_a_solver_that_found_nothing_in_time_is_told(stopped):
    stopped(None)
    with pytest.raises(
        PlanError, match=r"found no plan in 2\.00 s. Give it longer with --time-limit, or use --method w"
    ):
        integer_optimum(boxes(held=[9, 0], rate=[1, 1], up=[1, 1]), 1, 2)


def test_where_all_is_even_nothing_is_solved():
    found = integer_optimum(boxes(held=[5, 5], rate=[1, 1], up=[1, 1]), 2, 1)
    assert (found.holds.tolist(), found.promised_s, found.gap) == ([5, 5], 10, 0)


def test_a_node_that_holds_nothing_and_computes_nothing_changes_nothing():
    found = integer_optimum(boxes(held=[5, 5, 0], rate=[1, 1, 0], up=[1, 1, 1]), 2, 1)
    assert (found.holds.tolist(), found.promised_s) == ([5, 5, 0], 10)
