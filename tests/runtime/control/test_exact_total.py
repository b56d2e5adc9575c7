"""Sums that are rounded once are the same in any order and grouping."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.runtime.control.exact_total import add, total

NUMBERS = st.lists(st.floats(-1e200, 1e200), max_size=12)


def parts_of(numbers):
    parts: list[float] = []
    for number in numbers:
        add(parts, number)
    return parts


@given(NUMBERS, NUMBERS, st.randoms(use_true_random=False))
def test_a_sum_is_the_exact_one_rounded_whoever_adds_what(ours, theirs, chosen):
    both = [*ours, *theirs]
    expected = float(sum(map(Fraction, both)))
    assert total([*parts_of(ours), *parts_of(theirs)]) == expected
    assert total(parts_of(chosen.sample(both, len(both)))) == expected


@pytest.mark.parametrize(("numbers", "expected"), [([1.0, math.inf, 2.0], math.inf), ([1e308, 1e308], math.inf)])
def test_what_is_infinite_stays_so(numbers, expected):
    assert total(parts_of(numbers)) == expected


def test_what_is_no_number_stays_so():
    assert math.isnan(total(parts_of([1.0, math.nan, 2.0])))
