"""Cuts of a batch, and placements that make sense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.core.chunks import chunk_sizes
from nfold.core.placement import Placement, Reduction, Share
from nfold.errors import InternalError


@given(st.integers(1, 5000), st.integers(1, 64))
def test_chunks_cover_the_batch_in_nearly_equal_cuts(batch_size, num_chunks):
    sizes = chunk_sizes(batch_size, num_chunks)
    filled = [size for size in sizes if size]
    assert len(sizes) == num_chunks
    assert sum(sizes) == batch_size
    assert max(filled) - min(filled) <= 1
    assert list(sizes) == sorted(sizes, reverse=True), "larger ones first, empty ones last"


@given(st.integers(2, 500), st.integers(1, 64))
def test_no_chunk_has_a_single_sample(batch_size, num_chunks):
    assert 1 not in chunk_sizes(batch_size, num_chunks)


@given(st.integers(1, 50), st.integers(1, 20))
def test_no_chunk_is_empty_that_could_have_two_samples(batch_size, num_chunks):
    num_filled = sum(size > 0 for size in chunk_sizes(batch_size, num_chunks))
    assert num_filled == max(1, min(num_chunks, batch_size // 2))


def test_chunks_may_have_a_single_sample_where_that_does():
    assert chunk_sizes(4, 4, 1) == (1, 1, 1, 1)
    assert chunk_sizes(5, 4, 1) == (2, 1, 1, 1)
    assert chunk_sizes(8, 4, 1) == (2, 2, 2, 2)
    assert chunk_sizes(1, 3, 1) == (1, 0, 0)


@pytest.mark.parametrize(
    ("batch_size", "num_chunks", "sizes"),
    [
        (8, 4, (2, 2, 2, 2)),
        (10, 4, (3, 3, 2, 2)),
        (5, 4, (3, 2, 0, 0)),
        (3, 2, (3, 0)),
        (1, 3, (1, 0, 0)),
        (7, 1, (7,)),
    ],
)
def test_cuts_by_hand(batch_size, num_chunks, sizes):
    assert chunk_sizes(batch_size, num_chunks) == sizes


@given(st.integers(1, 5000), st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(any))
def test_chunks_follow_shares_within_a_sample(batch_size, shares):
    sizes = chunk_sizes(batch_size, len(shares), shares=shares)
    assert sum(sizes) == batch_size
    exact = [batch_size * share / sum(shares) for share in shares]
    assert all(abs(size - each) < 1 + 1e-9 for size, each in zip(sizes, exact, strict=True))


def test_shares_by_hand():
    assert chunk_sizes(16, 3, shares=(30, 11, 3)) == (11, 4, 1)
    assert chunk_sizes(4, 3, shares=(0.98, 0.01, 0.01)) == (4, 0, 0)
    with pytest.raises(InternalError, match="2 shares of a batch that is cut into 3 chunks"):
        chunk_sizes(16, 3, shares=(0.5, 0.5))


def test_a_placement_knows_the_ranks_of_operators():
    placement = Placement(num_chunks=3, world_size=4, owners={"A": (2, 0, 2), "B": (1, 1, 1)})
    assert placement.ranks_of(("A",)) == (0, 2)
    assert placement.ranks_of(("A", "B")) == (0, 1, 2)


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        ((0,), "A is placed for 1 chunks, the job has 2"),
        ((0, 2), r"A is placed on \(0, 2\), the job has ranks 0 to 1"),
        ((-1, 0), r"A is placed on \(-1, 0\), the job has ranks 0 to 1"),
    ],
)
def test_a_placement_that_makes_no_sense_is_refused(owners, message):
    with pytest.raises(InternalError, match=message):
        Placement(num_chunks=2, world_size=2, owners={"A": owners})


def test_a_reduction_counts_its_bytes_and_holders():
    reduction = Reduction(
        name="b0", parameters=("w",), num_elements=10, dtype="float32", item_bytes=4, members=(0, 2), route="server",
        shares=(Share(rank=3, start=0, stop=5), Share(rank=0, start=5, stop=10)),
    )  # fmt: skip
    assert reduction.num_bytes == 40
    assert reduction.holders == (0, 2, 3)
