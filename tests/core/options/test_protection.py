"""How often snapshots are worth what they take."""

import math

import pytest

from nfold.core.options.protection import Protect, read_protect, steps_between
from nfold.errors import PlanError


def test_what_is_asked_for_is_read():
    assert [read_protect(each).most_steps for each in ("auto", "off", "20", 3)] == [None, 0, 20, 3]
    assert [Protect(each).is_on for each in (None, 0, 20)] == [True, False, True]


@pytest.mark.parametrize("text", ["never", "0", "-1", 0, True, "1.5", ""])
def test_anything_else_is_refused(text):
    with pytest.raises(PlanError, match="it must be auto, off, or the most steps that a lost host may cost"):
        read_protect(text)


@pytest.mark.parametrize("cost_s", [0.001, 0.1, 10.0])
def test_the_best_interval_costs_no_more_than_its_neighbours(cost_s):
    """What is lost in the long run: the snapshots, and half of an interval with each host that dies."""
    between_s, step_s = 3600.0, 0.01

    def lost(steps: int) -> float:
        interval_s = steps * step_s
        return (math.exp((interval_s + cost_s) / between_s) - 1) / interval_s

    best = steps_between(cost_s, step_s, between_s)
    assert lost(best) <= min(lost(round(0.9 * best)), lost(round(1.1 * best)))


def test_there_is_at_least_a_step_between_and_at_most_a_host_life():
    assert steps_between(1e-6, 1000.0, 60.0) == 1
    assert steps_between(1000.0, 1.0, 60.0) == 60
