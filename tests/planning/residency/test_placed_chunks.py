"""What is refused before the first step, where samples are trained on where they live."""

from dataclasses import replace

import pytest
from grids import chain, facts

from nfold.core.residency import EpochSamples, PlacedRun, RankSamples
from nfold.errors import PlanError
from nfold.planning.choosing.search import plan
from nfold.planning.residency.placed_chunks import check_least, check_whole_chunks, shares_of

ONE, TWO = chain(10, why_pairs=""), chain(10, why_pairs="norm has no variance of one")


def placed(*counts, arriving=0):
    ends = [sum(counts[: rank + 1]) for rank in range(len(counts))]
    own = [RankSamples(own=((end - count, end - arriving),)) for end, count in zip(ends, counts, strict=True)]
    if arriving:
        own = [replace(each, arriving=((end - arriving, end),)) for each, end in zip(own, ends, strict=True)]
    names = tuple(f"pi{rank}" for rank in range(len(counts)))
    epochs = (EpochSamples(from_epoch=0, by_rank=tuple(own)),)
    return PlacedRun(first_step=0, members=tuple(range(len(counts))), nodes=names, epochs=epochs, in_a_row=2)


def test_a_share_counts_what_arrives():
    assert shares_of(placed(30, 10, arriving=4)) == (0.75, 0.25)


@pytest.mark.parametrize(("strategy", "workers"), [("ring", 2), ("ps", 2), ("single", 1)])
def test_whole_chunks_on_their_ranks_can_be_trained(strategy, workers):
    check_whole_chunks(plan(facts(ONE, workers, chunks=2), strategy), placed(20, 12))


@pytest.mark.parametrize(
    ("strategy", "chunks", "counts"),
    [("pipeline", 2, (20, 12)), ("ps-async", 2, (20, 12)), ("ring", 4, (20, 12)), ("ring", 2, (10, 10, 12))],
)
def test_chunks_that_pass_other_ranks_are_refused(strategy, chunks, counts):
    found = plan(facts(chain(10, 10), 2, chunks=chunks), strategy)
    with pytest.raises(PlanError, match=f"--strategy {strategy}, {chunks} chunks: the samples live on {len(counts)} "):
        check_whole_chunks(found, placed(*counts))


def test_single_samples_are_refused_where_a_program_computes_nothing_on_them():
    check_least([placed(99, 1)], 20, ONE)
    with pytest.raises(PlanError) as refused:
        check_least([placed(99, 1)], 20, TWO)
    assert str(refused.value) == (
        "rank 1 (pi1) would train on a single sample in step 5 of epoch 1, and a chunk must have two or more (norm has "
        "no variance of one). It holds 1 sample, which is 0.2 of a batch of 20. Use another batch size, or leave pi1 "
        "out: its samples must then move to others."
    )


def test_small_shares_are_trained_in_pairs():
    check_least([placed(960, 40)], 20, TWO)
    with pytest.raises(PlanError, match=r"which is 0.84 of a batch of 21\. Use an even batch size"):
        check_least([placed(960, 40)], 21, TWO)


def test_a_last_batch_of_one_sample_is_for_the_program_to_compute():
    check_least([placed(16, 5)], 20, TWO)


def test_an_epoch_under_way_is_looked_at_from_where_others_go_on():
    was, now = placed(98, 2), replace(placed(1, 99), first_step=2)
    with pytest.raises(PlanError, match=r"rank 0 \(pi0\) would train on a single sample"):
        check_least([was, now], 20, TWO)


def test_batches_before_others_go_on_are_not_looked_at():
    check_least([placed(960, 40), replace(placed(500, 500), first_step=46)], 21, TWO)
