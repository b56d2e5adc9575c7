"""Water-filling against a linear program, and against everything that its plans must keep."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scattered import boxes, random_boxes

from nfold.planning.residency.methods.linear_program import linear_optimum
from nfold.planning.residency.methods.waterfilling import Level, holdings_at, water_level
from nfold.planning.residency.model.boxes import least_compute_s

SEEDS = st.integers(0, 1 << 30)


def run_s(level, epochs):
    return level.move_s + epochs * level.compute_s


def test_it_is_the_linear_programs_optimum():
    for seed in range(200):
        asked, epochs = random_boxes(seed), (1, 10, 100)[seed % 3]
        exact = run_s(linear_optimum(asked, epochs)[0], epochs)
        assert run_s(water_level(asked, epochs), epochs) == pytest.approx(exact, rel=1e-9), f"seed {seed}"


@given(seed=SEEDS, epochs=st.sampled_from([1, 3, 30]))
def test_a_plan_keeps_every_limit(seed, epochs):
    asked = random_boxes(seed)
    level = water_level(asked, epochs)
    holds = holdings_at(asked, level)
    slack = 1e-6
    assert holds.sum() == pytest.approx(asked.total)
    assert (holds >= asked.least - slack).all()
    assert (holds <= asked.most + slack).all()
    assert (holds <= asked.rate * level.compute_s + slack).all(), "who is excluded holds nothing, too"
    assert (asked.held - holds <= asked.up * level.move_s + slack).all()
    assert (holds - asked.held <= asked.down * level.move_s + slack).all()


def test_two_nodes_by_hand():
    """Per sample, the slow node computes 1 s and its link needs 0.5 s: worth moving until both are done at once."""
    asked = boxes(held=[100, 0], rate=[1, 4], up=[2, 2])
    assert water_level(asked, 1) == pytest.approx(Level(move_s=40, compute_s=20))
    assert holdings_at(asked, Level(40, 20)).tolist() == [20, 80]


def test_nothing_moves_where_the_way_takes_longer_than_computing():
    asked = boxes(held=[100, 0], rate=[1, 4], up=[0.5, 0.5])
    assert water_level(asked, 1) == pytest.approx(Level(move_s=0, compute_s=100))
    assert water_level(asked, 100).move_s > 0, "with more epochs it pays"


def test_as_few_nodes_as_can_be_receive():
    asked = boxes(held=[90, 0, 0, 0], rate=[1, 1, 1, 1], up=[1e9] * 4)
    holds = holdings_at(asked, Level(move_s=1, compute_s=45))
    assert holds.tolist() == [45, 45, 0, 0]
    assert holdings_at(asked, Level(1, 45), np.array([0.0, 0, 0, 1])).tolist() == [45, 0, 0, 45], "preferred first"


def test_what_is_pinned_sets_the_least_time():
    asked = boxes(held=[90, 0], least=[60, 0], rate=[1, 9], up=[1e9] * 2)
    assert least_compute_s(asked) == 60
    assert least_compute_s(asked.unpinned()) == pytest.approx(9)


@pytest.mark.quiet
@pytest.mark.parametrize(("num_nodes", "limit_s"), [(1000, 0.010), (100_000, 2.0)])
def test_it_is_quick(num_nodes, limit_s):
    """By processor time, the best of some."""
    random, took_s = np.random.default_rng(0), []
    up = 40 * 100 ** random.random(num_nodes)
    held = np.floor(random.dirichlet(np.ones(num_nodes)) * 1000 * num_nodes)
    asked = boxes(held=held, rate=50 * random.choice([1, 2, 4, 8], num_nodes), up=up)
    for _ in range(5 if num_nodes < 10_000 else 2):
        begun_s = time.process_time()
        water_level(asked, 10)
        took_s.append(time.process_time() - begun_s)
    assert min(took_s) <= limit_s
