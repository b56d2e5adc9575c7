"""Which samples move, where they live then, and in which order they are visited there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.core.residency import Holding, Residency, Transfer
from nfold.errors import ClusterError
from nfold.planning.residency.model.transfers import moved_spans, residency_after
from nfold.planning.residency.resident_order import resident_order


def transfer(source, target, num_samples):
    return Transfer(source=source, target=target, num_samples=num_samples, num_bytes=0.0, takes_s=0.0, saves_s=None)


LISTED = Residency(
    holdings=(
        Holding(node="a", num_samples=10, num_pinned=2, spans=((0, 4), (20, 26))),
        Holding(node="b", num_samples=3, spans=((10, 13),)),
        Holding(node="c", num_samples=0),
    ),
    sample_bytes=1.0,
)


def test_the_last_of_a_list_leave_first_so_that_the_first_are_pinned():
    kept, sent = moved_spans(LISTED, [transfer("a", "b", 2), transfer("a", "c", 5)])
    assert kept["a"] == ((0, 3),)
    assert sent == (((24, 26),), ((3, 4), (20, 24)))


def test_no_sample_is_lost_or_doubled():
    after = residency_after(LISTED, [transfer("a", "b", 2), transfer("a", "c", 5)])
    assert [holding.num_samples for holding in after.holdings] == [3, 5, 5]
    assert [holding.spans for holding in after.holdings] == [((0, 3),), ((10, 13), (24, 26)), ((3, 4), (20, 24))]
    assert [holding.num_pinned for holding in after.holdings] == [2, 0, 0]


def test_who_lists_nothing_is_counted():
    counted = Residency(holdings=(Holding(node="a", num_samples=5), Holding(node="b", num_samples=0)), sample_bytes=1.0)
    after = residency_after(counted, [transfer("a", "b", 4)])
    assert [(holding.num_samples, holding.spans) for holding in after.holdings] == [(1, ()), (4, ())]


def test_what_is_pinned_cannot_be_sent():
    with pytest.raises(ClusterError, match="a would send 1 samples more than may leave it"):
        residency_after(LISTED, [transfer("a", "b", 6), transfer("a", "c", 3)])


HOLDS = st.lists(st.integers(0, 60), min_size=1, max_size=6).filter(any)


@given(holds=HOLDS, seed=st.integers(-5, 1 << 70), epoch=st.integers(0, 1000))
def test_every_sample_comes_once_in_an_epoch(holds, seed, epoch):
    order = resident_order(holds, seed, epoch)
    expected = [(node, place) for node, count in enumerate(holds) for place in range(count)]
    assert sorted(zip(order.node.tolist(), order.place.tolist(), strict=True)) == expected


@given(holds=HOLDS)
def test_nodes_take_turns_by_their_shares(holds):
    order, total = resident_order(holds, 1, 0), sum(holds)
    for node, count in enumerate(holds):
        seen, even = np.cumsum(order.node == node), np.arange(1, total + 1) * count / total
        assert np.abs(seen - even).max() <= 1 + len(holds) * count / (2 * total)


def test_an_order_is_the_same_for_a_seed_and_another_in_each_epoch():
    one, again, later, other = (resident_order([50, 20], *key) for key in ((3, 0), (3, 0), (3, 1), (4, 0)))
    assert (one.place == again.place).all()
    assert (one.place != later.place).any()
    assert (one.place != other.place).any()
    assert (one.node == later.node).all(), "who is to come follows from what nodes hold"


def test_the_order_never_changes():
    """A run that goes on elsewhere, years later, must visit the same samples."""
    order = resident_order([4, 2], 7, 3)
    assert order.node.tolist() == [0, 1, 0, 0, 1, 0]
    assert order.place.tolist() == [0, 0, 3, 2, 1, 1]
