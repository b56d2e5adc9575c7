"""In which order samples are visited where they live."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.core.residency import EpochSamples, PlacedRun, RankSamples
from nfold.errors import InternalError
from nfold.planning.residency.resident_order import check_runs, numbers_of, placed_order, resident_order, step_sizes

HOLDS = st.lists(st.integers(0, 60), min_size=1, max_size=6).filter(any)


def by_rank(holds):
    """Rank after rank holds the next samples."""
    ends = np.cumsum(holds).tolist()
    spans = [((end - count, end),) if count else () for end, count in zip(ends, holds, strict=True)]
    return tuple(RankSamples(own=each) for each in spans)


def placed(first_step, *epochs):
    ranks = range(len(epochs[0].by_rank))
    return PlacedRun(first_step=first_step, members=tuple(ranks), nodes=tuple(map(str, ranks)), epochs=epochs)


def from_epoch(epoch, samples):
    return EpochSamples(from_epoch=epoch, by_rank=samples)


@st.composite
def placements(draw, count):
    """So many samples cut into pieces that lie on some ranks, a few of them on their way."""
    cuts = sorted({0, count, *draw(st.lists(st.integers(0, count), max_size=8))})
    pieces = draw(st.permutations(list(pairwise(cuts))))
    ranks = draw(st.integers(1, 4))
    homes = [(draw(st.integers(0, ranks - 1)), draw(st.integers(0, 3))) for _ in pieces]

    def spans(rank, *, arriving):
        found = zip(pieces, homes, strict=True)
        return tuple(piece for piece, (home, way) in found if home == rank and (way == 0) == arriving)

    each = (RankSamples(own=spans(rank, arriving=False), arriving=spans(rank, arriving=True)) for rank in range(ranks))
    return tuple(each)


@st.composite
def histories(draw):
    """A run that was placed several times; its samples of a batch, and the samples in all."""
    count, batch = draw(st.integers(1, 60)), draw(st.integers(1, 20))
    per_epoch = -(-count // batch)
    steps = sorted({0, *draw(st.lists(st.integers(1, 3 * per_epoch), max_size=3))})
    runs = [
        replace(placed(step, from_epoch(step // per_epoch, draw(placements(count)))), in_a_row=draw(st.integers(1, 2)))
        for step in steps
    ]
    return runs, batch, count


@given(holds=HOLDS, seed=st.integers(-5, 1 << 70), epoch=st.integers(0, 1000), row=st.integers(1, 3))
def test_every_sample_comes_once_in_an_epoch_on_the_rank_that_holds_it(holds, seed, epoch, row):
    order = resident_order(by_rank(holds), seed, epoch, in_a_row=row)
    expected = np.repeat(np.arange(len(holds)), holds)
    assert sorted(order.number.tolist()) == list(range(sum(holds)))
    assert (order.rank == expected[order.number]).all()


@given(holds=HOLDS)
def test_ranks_take_turns_by_their_shares(holds):
    order, total = resident_order(by_rank(holds), 1, 0), sum(holds)
    for rank, count in enumerate(holds):
        seen, even = np.cumsum(order.rank == rank), np.arange(1, total + 1) * count / total
        assert np.abs(seen - even).max() <= 1 + len(holds) * count / (2 * total)


@given(history=histories(), seed=st.integers(0, 1 << 64))
def test_every_sample_comes_once_in_every_epoch_however_often_others_go_on(history, seed):
    runs, batch, count = history
    check_runs(runs, batch)
    for epoch in range(4):
        order = placed_order(runs, seed, epoch, batch)
        assert sorted(order.number.tolist()) == list(range(count))
        assert step_sizes(order, batch, 4).sum() == count


@given(history=histories(), seed=st.integers(0, 1 << 64))
def test_what_was_visited_stays_as_it_was_when_others_go_on(history, seed):
    runs, batch, count = history
    per_epoch = -(-count // batch)
    for before, run in zip(range(1, len(runs)), runs[1:], strict=False):
        epoch, position = divmod(run.first_step, per_epoch)
        was, now = (placed_order(some, seed, epoch, batch) for some in (runs[:before], runs[: before + 1]))
        done = position * batch
        assert (was.number[:done] == now.number[:done]).all()
        assert (was.rank[:done] == now.rank[:done]).all()
        homes = {
            n: rank for rank, each in enumerate(run.epochs[0].by_rank) for n in numbers_of(each.own + each.arriving)
        }
        assert all(homes[number] == rank for rank, number in zip(now.rank[done:], now.number[done:], strict=True))


def test_samples_on_their_way_are_the_last_of_their_rank_in_the_order_in_which_they_come():
    samples = (RankSamples(own=((0, 20),)), RankSamples(own=((20, 26),), arriving=((40, 44), (26, 40))))
    order = resident_order(samples, 5, 0)
    assert order.number[order.rank == 1].tolist()[6:] == [*range(40, 44), *range(26, 40)]


def test_an_order_is_the_same_for_a_seed_and_another_in_each_epoch():
    one, again, later, other = (resident_order(by_rank([50, 20]), *key) for key in ((3, 0), (3, 0), (3, 1), (4, 0)))
    assert (one.number == again.number).all()
    assert (one.number != later.number).any()
    assert (one.number != other.number).any()
    assert (one.rank == later.rank).all(), "whose turn it is follows from what ranks hold"


def test_the_order_never_changes():
    """A run that goes on elsewhere, years later, must visit the same samples."""
    order = resident_order(by_rank([4, 2]), 7, 3)
    assert order.rank.tolist() == [0, 1, 0, 0, 1, 0]
    assert order.number.tolist() == [0, 4, 3, 2, 5, 1]
    pairs = resident_order(by_rank([5, 2]), 7, 3, in_a_row=2)
    assert pairs.rank.tolist() == [0, 0, 1, 1, 0, 0, 0]


@given(holds=st.lists(st.integers(2, 60), min_size=1, max_size=6), batch=st.integers(1, 20).map(lambda half: 2 * half))
def test_pairs_stay_together_in_even_batches_but_for_the_last_ones(holds, batch):
    order = resident_order(by_rank(holds), 1, 0, in_a_row=2)
    odd = 3 * sum(count % 2 for count in holds)
    sizes = step_sizes(order, batch, len(holds))
    assert (sizes[: (sum(holds) - odd) // batch] != 1).all()


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ((placed(0, from_epoch(0, by_rank([3, 2])), from_epoch(0, by_rank([3, 2]))),), "from the epochs"),
        ((placed(0, from_epoch(1, by_rank([3, 2]))),), "from the epochs"),
        ((placed(0, from_epoch(0, by_rank([5]))), placed(0, from_epoch(0, by_rank([5])))), "begin at the steps"),
        ((placed(1, from_epoch(0, by_rank([5]))),), "amid an epoch of 5"),
        ((placed(0, from_epoch(0, (RankSamples(own=((0, 2), (3, 5))),))),), "not each of 4 samples"),
        ((placed(0, from_epoch(0, (RankSamples(own=((0, 3), (2, 4))),))),), "not each of 5 samples"),
        ((placed(0, from_epoch(0, by_rank([5]))), placed(2, from_epoch(0, by_rank([4])))), "not each of 5 samples"),
    ],
)
def test_placements_that_would_lose_or_double_a_sample_are_no_order(runs, message):
    with pytest.raises(InternalError, match=message):
        check_runs(runs, 2)
