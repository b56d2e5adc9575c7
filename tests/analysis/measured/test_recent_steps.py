"""What is shown of a run while it trains."""

from dataclasses import replace

import pytest

from nfold.analysis.measured.recent_steps import LEAST_STEPS, MOST_STEPS, RecentSteps


def steps(run):
    """Return the rows of each step, by step."""
    rows = run.trace().parts
    return [tuple(row for row in rows if row.step == step) for step in range(run.num_steps)]


def test_nothing_is_known_before_the_first_step(run):
    recent = RecentSteps(run().plan())
    assert (recent.samples_per_s, recent.left_s(5), recent.parts, recent.shares()) == (None, None, None, {})


def test_the_last_steps_say_how_fast_a_run_is_and_what_its_time_goes_to(run):
    made = run(compute_s=(0.03, 0.03), communication_s=(0.02, 0.02), servers=1, server_s=0.05, num_steps=4)
    recent = RecentSteps(made.plan())
    for step in steps(made):
        recent.keep(step)
    assert recent.samples_per_s == pytest.approx(128 / 0.0503, rel=0.01)
    assert recent.left_s(10) == pytest.approx(0.5, rel=0.03)
    assert recent.parts is not None
    assert recent.parts.compute_s == pytest.approx(0.03), "of workers alone"
    assert recent.shares()[0].compute == pytest.approx(0.6)
    assert recent.shares()[0].communication == pytest.approx(0.4)
    assert recent.shares()[2].compute == 0.0


def test_what_was_long_ago_does_not_count(run):
    recent = RecentSteps(run().plan())
    slow, fast = steps(run(compute_s=(1.0, 1.0)))[0], steps(run(compute_s=(0.03, 0.03)))[0]
    recent.keep(slow)
    for _ in range(MOST_STEPS):
        recent.keep(fast)
    assert recent.left_s(1) == pytest.approx(0.04)


def test_of_many_ranks_fewer_steps_are_kept(run):
    plan = run(workers=500, compute_s=(0.03,) * 500, communication_s=(0.01,) * 500).plan()
    recent, slow = RecentSteps(plan), steps(run(compute_s=(1.0, 1.0)))[0]
    for step in (slow, *steps(run(compute_s=(0.03, 0.03)))[:LEAST_STEPS]):
        recent.keep(tuple(replace(row, step=0) for row in step))
    assert recent.left_s(1) == pytest.approx(0.04)
