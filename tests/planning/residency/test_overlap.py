"""Moving while training: the shortest epoch against a linear program, and what every epoch must keep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scattered import boxes, cluster, demand, random_problem
from scipy.optimize import linprog

from nfold.planning.residency.methods.choices import moved_beside, waterfill
from nfold.planning.residency.methods.overlap import Idle, idle_links, least_epoch_s, overlapped
from nfold.planning.residency.model.problem import problem_of


def shortest_by_linear_program(asked, idle):
    """Least T, where what moves and what is computed fit into it."""
    n = len(asked.held)
    one, none = np.eye(n), np.zeros((n, n))
    column = lambda values: -np.asarray(values)[:, None]  # noqa: E731
    rows = np.vstack(
        [
            np.hstack([-one, one, column(asked.rate)]),
            np.hstack([one, none, column(idle.sends_rate)]),
            np.hstack([none, one, column(idle.takes_rate)]),
            np.hstack([-one, one, column(np.zeros(n))]),
        ]
    )
    most = np.where(np.isfinite(asked.most), asked.most - asked.held, 1e12)
    limits = np.concatenate([-asked.held, idle.sends_fixed, idle.takes_fixed, most])
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
    idle = Idle(np.zeros(2), asked.up, np.zeros(2), asked.down)
    assert least_epoch_s(asked, idle) == pytest.approx(50)


def test_gradients_come_first():
    """A link that gradients fill carries no samples."""
    nodes = cluster(("a", 1000, 1, 1), ("b", 0, 1, 1))
    problem = problem_of(nodes, demand(gradient_bytes=1e6), rates={})
    idle = idle_links(problem, problem.can_compute)
    assert idle.sends_fixed == pytest.approx([0, 0], abs=1e-6)
    free = problem_of(nodes, demand(), rates={})
    assert overlapped(free, free.can_compute).holds == pytest.approx([500, 500])


def test_gradients_wait_for_pieces_while_samples_move():
    """Two messages that wait for each other in each of 10 steps, for two pieces of 20 ms each."""
    nodes = cluster(("a", 1000, 1, 1), ("b", 0, 1, 1))
    free, held_up = (problem_of(nodes, demand(gradient_bytes=size), rates={}) for size in (0.0, 1e-3))
    quick, slow = (overlapped(each, each.can_compute).cost for each in (free, held_up))
    assert slow.first_epoch_s == pytest.approx(quick.first_epoch_s + 10 * 2 * 2 * 0.02)
    assert slow.epoch_s == pytest.approx(quick.epoch_s), "nothing moves any more"
