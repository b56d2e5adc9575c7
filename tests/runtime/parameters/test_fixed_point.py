"""Sums of whole numbers: one result in any order and grouping, half a unit of error, nothing too large unseen."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfold.runtime.parameters.fixed_point import MOST, Adder, TooLarge, digits_of, from_digits, squares, write

BITS = 40
VALUES = st.lists(st.floats(-(2.0**18), 2.0**18), min_size=1, max_size=8)
WHOLE = st.lists(st.integers(-(2**62), 2**62), max_size=20)


def summed(values, dtype=torch.float64, num_addends=8, bits=BITS):
    """The sum of values, as whole numbers of one element."""
    adder, sums = Adder(bits, num_addends), torch.zeros(1, dtype=torch.int64)
    for value in values:
        adder.add(sums, torch.tensor([value], dtype=dtype))
    return sums


@given(VALUES, st.randoms(use_true_random=False), st.integers(0, 8))
def test_order_and_grouping_change_no_bit_and_each_addend_is_off_by_half_a_unit(values, chosen, border):
    mixed = chosen.sample(values, len(values))
    sums = summed(values)
    assert torch.equal(sums, summed(mixed[:border]) + summed(mixed[border:]))
    exact = sum(map(Fraction, values))
    assert abs(Fraction(int(sums), 2**BITS) - exact) <= Fraction(len(values), 2 ** (BITS + 1))


def test_the_order_of_floating_point_numbers_changes_bits_here():
    values = [2.0**18 / 3, -(2.0**18) / 3 + 1e-7, 1e-3 / 3]
    assert sum(values) != sum(reversed(values))
    assert torch.equal(summed(values), summed(values[::-1]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_what_is_written_is_the_sum_in_the_type_of_the_weights(dtype):
    sums, into = summed([0.5, 0.25, -1.5], dtype), torch.empty(1, dtype=dtype)
    write(sums, BITS, into)
    assert into.tolist() == [-0.75]


def test_many_elements_are_added_block_by_block():
    adder, sums = Adder(BITS, 2), torch.zeros(40_000, dtype=torch.int64)
    values = torch.linspace(-1, 1, 40_000, dtype=torch.float64)
    adder.add(sums, values)
    adder.add(sums, values.flip(0))
    assert int(sums.abs().max()) <= 1


@pytest.mark.parametrize("size", [1.001, -1.001, math.inf, -math.inf, math.nan])
def test_what_has_no_room_is_refused_wherever_it_stands(size):
    limit = MOST / 8 / 2.0**BITS
    summed([limit, -limit] * 4)
    values = torch.zeros(20_000, dtype=torch.float64)
    values[19_000] = size * limit
    with pytest.raises(TooLarge, match=f"-{limit:g} and {limit:g}"):
        Adder(BITS, 8).add(torch.zeros(20_000, dtype=torch.int64), values)


def test_as_many_of_the_largest_as_there_may_be_do_not_overflow():
    limit = MOST / 8 / 2.0**BITS
    assert int(summed([limit] * 8)) == 2**62


@given(WHOLE)
def test_squares_are_added_exactly(values):
    assert squares(torch.tensor(values, dtype=torch.int64)) == sum(value**2 for value in values)


@given(st.integers(0, 2**192 - 1))
def test_a_sum_of_squares_survives_being_sent(total):
    digits = digits_of(total)
    assert from_digits(digits) == total
    assert from_digits(torch.tensor(digits, dtype=torch.float64).tolist()) == total
