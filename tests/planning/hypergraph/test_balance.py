"""A division out of balance is told with its figures, one within the limits is not."""

import pytest
from grids import chain
from test_cell_hypergraph import hypergraph
from test_partition import limits

from nfold.planning.hypergraph.balance import balance_notes, imbalance, keeps
from nfold.planning.hypergraph.partition import measure

CELLS = hypergraph(chain(1, 1), 16, 4, A=2.0, B=1.0, Loss=0.0)
"""Of each chunk two seconds and one, of which a rank of two should have six."""
LOOSEST = limits(1, 1, epsilon=0.25)


@pytest.mark.parametrize(
    ("blocks", "above"),
    [((0, 1, 0, 1) * 2, 0.0), ((0,) * 4 + (1,) * 4, 1 / 3), ((0,) * 8, 1.0)],
)
def test_the_heaviest_is_measured_by_its_share(blocks, above):
    assert imbalance(measure(CELLS, LOOSEST, blocks), LOOSEST) == pytest.approx(above)


def test_a_faster_rank_may_have_more():
    unlike = limits(2, 1, epsilon=0.25)
    assert imbalance(measure(CELLS, unlike, (0,) * 4 + (1,) * 4), unlike) == pytest.approx(0.0)


def test_what_is_within_the_limits_is_not_told():
    even = measure(CELLS, LOOSEST, (0, 1, 0, 1) * 2)
    assert keeps(even, LOOSEST)
    assert balance_notes(even, LOOSEST, is_possible=True, is_divisible=True) == ()


@pytest.mark.parametrize(
    ("is_possible", "why"), [(True, "is predicted to be worth that"), (False, "no division within that was found")]
)
@pytest.mark.parametrize("is_divisible", [True, False])
def test_what_is_beyond_them_is_told_with_the_numbers(is_possible, why, is_divisible):
    uneven = measure(CELLS, LOOSEST, (0,) * 4 + (1,) * 4)
    (note,) = balance_notes(uneven, LOOSEST, is_possible=is_possible, is_divisible=is_divisible)
    assert ("more --chunks" in note) == (is_divisible and not is_possible)
    assert "33% more work than its share by its speed, beyond the 25%" in note
    assert why in note
