"""How many chunks, and whose they are."""

from itertools import product

import pytest
from grids import chain, facts
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.planning.chunking import chunk_counts, deal, share_chunks


@pytest.mark.parametrize(
    ("question", "counts"),
    [
        (facts(chain(1), 2, batch_size=64), (2, 4, 8)),
        (facts(chain(1), 4, batch_size=64), (4, 8, 16)),
        (facts(chain(1), 8, batch_size=64), (8, 16)),
        (facts(chain(1), 64, batch_size=256), (64, 128)),
        (facts(chain(1), 4, batch_size=17), (4, 8)),
        (facts(chain(1), 4, batch_size=6), (3,)),
        (facts(chain(1), 4, chunks=7), (7,)),
        (facts(chain(1, indivisible="no mean"), 4), (1,)),
    ],
)
def test_counts_follow_the_workers_within_what_a_batch_has(question, counts):
    assert chunk_counts(question) == counts


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.lists(st.integers(1, 9).map(float), min_size=1, max_size=3))
def test_no_other_shares_would_be_done_earlier(num_chunks, seconds):
    counts = share_chunks(num_chunks, tuple(seconds))
    every = [each for each in product(range(num_chunks + 1), repeat=len(seconds)) if sum(each) == num_chunks]
    ends = [max(count * second for count, second in zip(each, seconds, strict=True)) for each in (counts, *every)]
    assert sum(counts) == num_chunks
    assert ends[0] == min(ends)


def test_a_rank_twice_as_fast_gets_twice_as_many():
    assert share_chunks(8, (1.0, 2.0, 4.0, 4.0)) == (4, 2, 1, 1)
    assert share_chunks(5, (1.0, 1.0)) == (3, 2)


def test_turns_are_spread_evenly():
    assert deal((2, 2)) == (0, 1, 0, 1)
    assert deal((4, 2)) == (0, 1, 0, 0, 1, 0)
    assert deal((0, 2)) == (1, 1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_everybody_has_as_many_turns_as_chunks(counts):
    turns = deal(tuple(counts))
    assert [turns.count(position) for position in range(len(counts))] == counts
