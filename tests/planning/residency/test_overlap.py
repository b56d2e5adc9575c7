"""Moving while training: the shortest epoch against a linear program, and what every epoch must keep."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scattered import boxes, cluster, demand, random_problem
from scipy.optimize import linprog

from nfold.planning.residency.methods.choices import moved_beside, nothing, waterfill
from nfold.planning.residency.methods.overlap import Idle, idle_links, least_epoch_s, overlapped
from nfold.planning.residency.model.pieces import held_up_s, idle_share
from nfold.planning.residency.model.problem import problem_of


def shortest_by_linear_program(asked, idle):
    """Least T, where what moves and what is computed fit into it."""
    n = len(asked.held)
    one, none = np.eye(n), np.zeros((n, n))
    column = lambda values: -np.asarray(values)[:, None]  # noqa: E731
    rows = np.vstack(
        [
            np.hstack([-one, one, column(asked.rate)]),
            np.hstack([one, none, column(idle.sends)]),
            np.hstack([none, one, column(idle.takes)]),
            np.hstack([-one, one, column(np.zeros(n))]),
        ]
    )
    most = np.where(np.isfinite(asked.most), asked.most - asked.held, 1e12)
    limits = np.concatenate([-asked.held, np.zeros(2 * n), most])
    ranges = [*((0, left) for left in asked.held - asked.least), *[(0, None)] * n, (0, None)]
    balance = np.concatenate([np.ones(n), -np.ones(n), [0.0]])[None, :]
    goal = np.concatenate([np.zeros(2 * n), [1.0]])
    return linprog(goal, A_ub=rows, b_ub=limits, A_eq=balance, b_eq=[0.0], bounds=ranges).fun


def test_the_first_epoch_is_as_short_as_can_be():
    for seed in range(80):
        problem = random_problem(seed)
        idle = idle_links(problem, problem.can_compute)
        assert least_epoch_s(problem.boxes, idle) == pytest.approx(
            shortest_by_linear_program(problem.boxes, idle), rel=1e-7
        ), f"seed {seed}"


@given(seed=st.integers(0, 1 << 30))
def test_what_is_held_keeps_every_limit(seed):
    problem = random_problem(seed)
    run, asked = overlapped(problem, problem.can_compute), problem.boxes
    assert run.holds.sum() == pytest.approx(asked.total)
    assert (run.holds >= asked.least - 1e-6).all()
    assert (run.holds <= asked.most + 1e-6).all()
    assert (run.holds[asked.rate == 0] <= 1e-6).all()
    assert run.cost.epoch_s <= run.cost.first_epoch_s * (1 + 1e-9), "epochs never become longer"


@given(seed=st.integers(0, 1 << 30))
def test_one_epoch_is_never_slower_than_moving_first(seed):
    problem = random_problem(seed, kind="ring")
    alone = problem.with_demand(traffic=demand().traffic, epochs=1)
    beside, before = moved_beside("overlap", alone, alone.can_compute), waterfill(alone)
    assert beside.cost.run_s <= before.cost.run_s * (1 + 1e-9)


def test_a_link_is_a_second_processor():
    """100 samples at 1/s beside a link of 1/s: half of them leave while the other half is computed."""
    asked = boxes(held=[100, 0], rate=[1, 4], up=[1, 1])
    idle = Idle(asked.up, asked.down)
    assert least_epoch_s(asked, idle) == pytest.approx(50)


def test_samples_have_the_time_in_which_nodes_compute_and_no_more():
    """A node of 10 samples/s beside a link of 125: gradients that take 8 s of each step leave it as much as those of
    8 ms."""
    nodes = cluster(("a", 1000, 10, 1), ("b", 0, 10, 1))
    found = []
    for gradient_bytes in (1e3, 1e6):
        problem = problem_of(nodes, demand(gradient_bytes=gradient_bytes), rates={})
        share = idle_share(problem.demand.traffic, problem.can_compute)
        idle = idle_links(problem, problem.can_compute)
        assert idle.sends == pytest.approx(share * problem.boxes.up)
        assert 0.5 < share < 1.0
        found.append(overlapped(problem, problem.can_compute).works[0])
    assert found[0] == pytest.approx(found[1])
    free = problem_of(nodes, demand(), rates={})
    assert idle_links(free, free.can_compute).sends == pytest.approx(free.boxes.up), "none travel"


def test_a_step_waits_once_for_the_pieces_that_have_left_while_samples_move():
    """In each of 10 steps, two pieces of 5 ms."""
    nodes = cluster(("a", 1000, 1, 10), ("b", 0, 1, 10), ("c", 0, 1, 10))
    slow = problem_of(nodes, demand(gradient_bytes=1e-3), rates={})
    quick = replace(slow, links=slow.links._replace(up=slow.links.up * 1e6, down=slow.links.down * 1e6))
    slow, quick = (overlapped(each, each.can_compute).cost for each in (slow, quick))
    assert slow.first_epoch_s == pytest.approx(quick.first_epoch_s + 10 * 2 * (0.005 - 65536 / 1250e9))
    assert slow.epoch_s == pytest.approx(quick.epoch_s), "nothing moves any more"


@given(seed=st.integers(0, 1 << 30))
def test_no_step_is_slower_than_without_moving_but_for_the_pieces_that_have_left(seed):
    problem = random_problem(seed)
    stays = nothing(problem)
    if stays is None:
        return
    asked = problem.demand
    held_s = np.ceil(problem.boxes.total / asked.batch_size) * held_up_s(asked.traffic, problem.links, stays.members)
    run = overlapped(problem, stays.members)
    assert run.cost.first_epoch_s <= (stays.cost.epoch_s + held_s) * (1 + 1e-9)
    assert run.cost.run_s <= (stays.cost.run_s + asked.epochs * held_s) * (1 + 1e-9)
