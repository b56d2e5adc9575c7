"""A change for good is told from noise, and from what is soon over."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.runtime.measuring.lasting_change import LastingChange


def changes(values, span_s=0.2):
    """Every change that is noticed, with the number of the value that showed it."""
    watch = LastingChange()
    found = ((number, watch.take(value, span_s)) for number, value in enumerate(values))
    return [(number, factor) for number, factor in found if factor is not None]


def noisy(values, seed):
    chosen = random.Random(seed)
    return [value * chosen.uniform(0.8, 1.2) for value in values]


@given(st.integers(), st.floats(0.001, 1.0))
def test_noise_of_a_fifth_is_no_change(seed, span_s):
    assert changes(noisy([1.0] * 300, seed), span_s) == []


@given(st.integers(), st.sampled_from([0.1, 0.25, 0.6, 1.7, 4.0, 10.0]))
def test_a_step_is_one_change(seed, factor):
    ((number, found),) = changes(noisy([1.0] * 40 + [factor] * 200, seed))
    assert found == pytest.approx(factor, rel=0.25)
    assert number < 40 + 6 * 4, "within six blocks"


@given(st.integers())
def test_there_and_back_are_two(seed):
    (_, slower), (_, faster) = changes(noisy([1.0] * 40 + [4.0] * 80 + [1.0] * 80, seed))
    assert slower * faster == pytest.approx(1.0, rel=0.4)


def test_what_comes_and_goes_is_followed_ever_later():
    every_ten_s = [factor for _ in range(40) for factor in (1.0, 4.0) for _ in range(50)]
    assert len(changes(every_ten_s)) <= 4


@pytest.mark.parametrize("before", [40, 41, 42, 43])
def test_what_is_soon_over_is_no_change(before):
    assert changes([1.0] * before + [9.0] * 11 + [1.0] * 40) == []


def test_steps_that_are_shorter_than_the_period_of_a_limit_count_with_their_waits():
    """Of a fifth of a core: four steps take what they compute, and one waits for the next period."""
    shares = [[0.002] * 4 + [0.042]] * 100
    assert changes([value for each in shares for value in each] + [0.01] * 500, 0.01) == []


def test_short_values_are_watched_for_as_long_as_long_ones():
    few = changes([1.0] * 4000 + [4.0] * 4000, 0.001)
    assert [number for number, _ in few] == [4000 + 5 * 500 - 1]
