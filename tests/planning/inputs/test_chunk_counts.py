"""How many chunks, and whose they are."""

from dataclasses import replace
from itertools import product

import pytest
from grids import chain, facts
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.errors import PlanError, ProgramError
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.wishes import check
from nfold.planning.inputs.chunk_counts import check_samples, chunk_counts, chunk_notes, deal, share_chunks

TWO = replace(chain(2), least_samples=2, least_samples_module="1", least_samples_error="ValueError: too few")


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


def test_single_samples_are_for_batches_that_workers_could_not_share_else():
    alone = chain(2, why_pairs="")
    assert chunk_counts(facts(alone, 4, batch_size=6)) == (4,)
    assert chunk_counts(facts(alone, 4, batch_size=17)) == (4, 8)
    assert plan(facts(alone, 4, batch_size=4), "ring").chunks == 4
    assert plan(facts(alone, 2, batch_size=4, chunks=4), "pipeline").notes == ()


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


def test_chunks_that_stay_empty_are_told_of_with_who_needs_two_samples():
    found = plan(facts(TWO, 2, batch_size=4, chunks=4), "pipeline")
    assert (
        "a batch of 4 samples fills 2 of 4 chunks, since each has two samples or more (module 1 does not "
        "compute on one); the others stay empty"
    ) in found.notes


@pytest.mark.parametrize("strategy", ["ring", "ps", "weighted", "ssp"])
def test_workers_without_a_sample_are_refused_with_who_needs_two_of_them(strategy):
    words = r"fills 2 of 4 chunks, since each has two samples or more \(module 1 does not compute on one\), so 2 of 4"
    with pytest.raises(PlanError, match=words):
        check(facts(TWO, 4, batch_size=4), strategy)
    assert check(facts(TWO, 2, batch_size=4), strategy) is None


def test_workers_without_a_sample_are_refused_with_why_no_chunk_has_a_single_one():
    asked = facts(chain(2, why_pairs="nobody could prove it"), 4, batch_size=4)
    with pytest.raises(PlanError, match=r"each has two samples or more \(nobody could prove it\), so 2 of 4"):
        check(asked, "ring")


@pytest.mark.parametrize(("batch_size", "chunks"), [(8, 4), (9, 4), (1, 1), (2, 1)])
def test_nothing_is_told_where_all_chunks_hold_samples(batch_size, chunks):
    assert chunk_notes(TWO, batch_size, chunks) == ()


def test_a_batch_that_the_program_does_not_compute_on_is_refused_with_who_does_not():
    words = r"module 1 does not compute on 1 sample, .* ValueError: too few. Use a batch size of at least 2\."
    with pytest.raises(ProgramError, match=words):
        check_samples(TWO, 1)
    check_samples(TWO, 2)
    check_samples(chain(2), 1)
