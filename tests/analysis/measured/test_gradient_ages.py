"""How old gradients are, in words."""

import pytest

from nfold.analysis.measured.gradient_ages import altered, is_old, mean_age, oldest, worth

OLD, FRESH = {0: 1, 2: 2, 8: 1}, {0: 4}


def test_ages_are_weighted_by_their_gradients():
    assert mean_age(OLD) == pytest.approx(3.0)
    assert oldest(OLD) == 8
    assert mean_age({}) == oldest({}) == 0
    assert is_old(OLD)
    assert not is_old(FRESH)
    assert not is_old({})


def test_old_gradients_are_worth_less():
    assert worth(OLD).startswith("Gradients were 3.0 updates old on average, 8 at most: a step is worth less")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (FRESH, FRESH, ""),
        ({}, {}, ""),
        (OLD, OLD, ""),
        ({2: 9, 3: 1}, {2: 8, 3: 2}, ""),
        (OLD, {}, " (no gradient is old)"),
        (OLD, FRESH, " (no gradient is old)"),
        (FRESH, OLD, " (gradients 3.0 updates old, 8 at most, instead of fresh ones)"),
        (OLD, {2: 4}, " (gradients 2.0 instead of 3.0 updates old, 2 instead of 8 at most)"),
    ],
)
def test_a_change_says_what_it_does_to_them(before, after, said):
    assert altered(before, after) == said
