"""Which samples move, and where they live then."""

import pytest

from nfold.core.residency import Holding, Residency, Transfer
from nfold.errors import ClusterError
from nfold.planning.residency.model.transfers import moved_spans, residency_after


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
