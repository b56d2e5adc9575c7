"""Members and data at once, against every set of members there is."""

import time
from itertools import product

import numpy as np
import pytest
from scattered import cluster, demand, random_problem

from nfold.planning.residency.methods.joint import is_possible, joint_optimum, of_members
from nfold.planning.residency.model.problem import problem_of
from nfold.planning.residency.model.scenarios import SCENARIOS, drawn


def best_of_all(problem):
    """The best of all sets of members, by looking at each."""
    every = (np.array(bits) for bits in product([False, True], repeat=len(problem.names)))
    allowed = (bits for bits in every if not (bits & ~problem.can_compute).any() and is_possible(problem, bits))
    return min(of_members(problem, members).run_s for members in allowed)


@pytest.mark.parametrize("kind", ["ring", "server"])
def test_it_is_the_best_of_all_sets(kind):
    for seed in range(30):
        problem = random_problem(seed, most_nodes=5, kind=kind)
        assert joint_optimum(problem).run_s == pytest.approx(best_of_all(problem), rel=1e-9), f"seed {seed}"


def test_a_slow_link_sends_its_data_once_and_no_gradients():
    nodes = cluster(("slow", 1000, 100, 1), ("a", 1000, 100, 100), ("b", 1000, 100, 100))
    found = joint_optimum(problem_of(nodes, demand(gradient_bytes=1e6), rates={}))
    assert found.members.tolist() == [False, True, True]
    assert found.level.move_s == pytest.approx(8), "a million bytes at 1 Mbit/s"
    light = joint_optimum(problem_of(nodes, demand(gradient_bytes=10), rates={}))
    assert light.members.all(), "gradients that weigh nothing are worth any link"


def test_pinned_data_keeps_its_node_a_member():
    nodes = cluster(("slow", 1000, 100, 1, {"num_pinned": 10}), ("a", 1000, 100, 100), ("b", 1000, 100, 100))
    assert joint_optimum(problem_of(nodes, demand(gradient_bytes=1e6), rates={})).members[0]


@pytest.mark.quiet
@pytest.mark.parametrize("kind", ["ring", "server"])
def test_it_is_quick_for_a_thousand_nodes(kind):
    problem, took_s = problem_of(drawn(SCENARIOS[1], 1000, 0), demand(gradient_bytes=1e6, kind=kind), rates={}), []
    for _ in range(3):
        begun_s = time.process_time()
        joint_optimum(problem)
        took_s.append(time.process_time() - begun_s)
    assert min(took_s) <= 1.0
