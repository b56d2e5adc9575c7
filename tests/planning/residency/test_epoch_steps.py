"""Epochs of which later ones have more samples: which steps they have, and that each sample is visited once in each."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.core.residency import EpochSamples, PlacedRun, RankSamples, SampleMove
from nfold.errors import InternalError
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.planning.residency.placed_run import counted_from
from nfold.planning.residency.resident_order import check_runs, epoch_steps, placed_order

BATCH = 4
TWO = (RankSamples(own=((0, 12),)), RankSamples(own=((12, 20),)))
THREE = (RankSamples(own=((0, 10),)), RankSamples(own=((12, 20),)), RankSamples(own=((20, 29), (10, 12))))


def run(by_rank, first_step=0, from_epoch=0):
    ranks = tuple(range(len(by_rank)))
    epochs = (EpochSamples(from_epoch=from_epoch, by_rank=by_rank),)
    return PlacedRun(first_step=first_step, members=ranks, nodes=tuple(map(str, ranks)), epochs=epochs)


def visited(runs, epoch):
    return sorted(placed_order(runs, 3, epoch, BATCH).number.tolist())


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=4))
def test_steps_and_epochs_are_those_that_counting_them_one_by_one_finds(stretches):
    begins = [sum(epochs for epochs, _ in stretches[:index]) for index in range(len(stretches))]
    steps = EpochSteps(tuple((begin, each) for begin, (_, each) in zip(begins, stretches, strict=True)))
    lengths = [each for epochs, each in stretches for _ in range(epochs)] + [stretches[-1][1]] * 3
    places = [(epoch, position) for epoch, length in enumerate(lengths) for position in range(length)]
    for step, (epoch, position) in enumerate(places[: -2 * lengths[-1]]):
        assert (steps.epoch(step), steps.position(step)) == (epoch, position)
        assert (steps.steps(epoch), steps.first_step(epoch)) == (lengths[epoch], sum(lengths[:epoch]))
        assert steps.is_end(step) == (position == 0)
        assert steps.next_end(step) == sum(lengths[: epoch + 1])
        assert steps.begun(step) == (epoch if position == 0 else epoch + 1)


def test_what_is_brought_amid_an_epoch_counts_from_the_next_one_on():
    runs = (run(TWO), counted_from(run(THREE, first_step=7, from_epoch=1), ((20, 29),), 2))
    check_runs(runs, BATCH)
    assert epoch_steps(runs, BATCH) == EpochSteps(((0, 5), (2, 8)))
    assert [visited(runs, epoch) for epoch in range(4)] == [[*range(20)]] * 2 + [[*range(29)]] * 2


def test_what_is_brought_between_two_epochs_counts_at_once():
    runs = (run(TWO), run(THREE, first_step=5, from_epoch=1), run(THREE, first_step=6, from_epoch=1))
    check_runs(runs, BATCH)
    assert epoch_steps(runs, BATCH) == EpochSteps(((0, 5), (1, 8)))
    assert [visited(runs, epoch) for epoch in range(3)] == [[*range(20)], [*range(29)], [*range(29)]]


def test_what_nobody_has_before_it_counts_is_left_out_again():
    amid = counted_from(run(THREE, first_step=7, from_epoch=1), ((20, 29),), 2)
    runs = (run(TWO), amid, run(TWO, first_step=9, from_epoch=1))
    check_runs(runs, BATCH)
    assert epoch_steps(runs, BATCH) == EpochSteps.even(5)
    assert [visited(runs, epoch) for epoch in range(3)] == [[*range(20)]] * 3


@pytest.mark.parametrize(
    ("later", "epoch"),
    [
        (run(THREE, first_step=7, from_epoch=1), 1),  # an epoch that is under way would grow
        (run((*TWO, RankSamples(own=((19, 25),))), first_step=5, from_epoch=1), 1),  # sample 19 twice
        (run((RankSamples(own=((0, 19), (20, 29))),), first_step=5, from_epoch=1), 1),  # sample 19 lost
    ],
)
def test_placements_of_which_an_epoch_has_other_samples_are_refused(later, epoch):
    with pytest.raises(InternalError, match=f"from epoch {epoch} on, not each of 20 samples is visited once"):
        check_runs((run(TWO), later), BATCH)


def test_what_moves_before_it_counts_arrives_in_the_epoch_that_needs_it():
    """Sample 0 moves in the epoch under way; of those that are brought, all to one rank, two were to move then, too."""
    arrives = (RankSamples(own=((1, 12),)), RankSamples(own=((12, 20), (22, 24)), arriving=((0, 1), (20, 22))))
    own = (arrives[0], RankSamples(own=((12, 20), (22, 24), (0, 1), (20, 22))))
    epochs = (*run(arrives).epochs, EpochSamples(from_epoch=1, by_rank=own))
    moves = (SampleMove(source=0, target=1, spans=((0, 1), (20, 22)), epoch=0),)
    found = counted_from(replace(run(arrives), epochs=epochs, moves=moves), ((20, 24),), 1)
    now = (arrives[0], RankSamples(own=((12, 20),), arriving=((0, 1),)))
    then = (arrives[0], RankSamples(own=((12, 20), (22, 24), (0, 1)), arriving=((20, 22),)))
    assert [(each.from_epoch, each.by_rank) for each in found.epochs] == [(0, now), (1, then), (2, own)]
    assert [(move.spans, move.epoch) for move in found.moves] == [(((0, 1),), 0), (((20, 22),), 1)]
    check_runs((found,), BATCH)


@pytest.mark.parametrize("source", [0, 1])
def test_what_passes_through_a_node_before_it_counts_comes_at_once_from_who_has_brought_it(source):
    """Samples that are brought move on in the first epoch that counts them, and it is said of either that it sends."""
    kept, brought = (RankSamples(own=((0, 12),)), RankSamples(own=((12, 20),)), RankSamples(own=())), ((20, 24),)
    passing = (kept[0], RankSamples(own=((12, 20),), arriving=brought), kept[2])
    arriving = (*kept[:2], RankSamples(own=(), arriving=brought))
    there = (*kept[:2], RankSamples(own=brought))
    found = run(passing)
    epochs = [EpochSamples(from_epoch=epoch, by_rank=ranks) for epoch, ranks in enumerate((passing, arriving, there))]
    moves = (
        SampleMove(source=0, target=1, spans=brought, epoch=0),
        SampleMove(source=source, target=2, spans=brought, epoch=1),
    )
    found = counted_from(replace(found, epochs=tuple(epochs), moves=moves), brought, 1)
    assert [each.by_rank for each in found.epochs] == [kept, arriving, there]
    assert found.moves == (SampleMove(source=0, target=2, spans=brought, epoch=1),)
    check_runs((found,), BATCH)
