"""Other shares are wanted where they would have won in all of a while, whoever is slow, and not for noise."""

import random

import pytest

from nfold.runtime.measuring.better_shares import BetterShares, RankTimes

STEP_S = 0.2


def wanted(counts, speeds, steps=400, noise=0.0, beside=0.0, watch=None, seed=0):
    """Steps after which other shares are wanted.

    Args:
        counts: chunks of each rank.
        speeds: chunks that each computes in a second, but for a factor.
        steps: to play.
        noise: what a chunk takes differs by that share, up and down, from step to step.
        beside: seconds beside chunks; the last rank is done after about `STEP_S`.
        watch: that goes on.
        seed: of the noise.
    """
    chosen, found = random.Random(seed), []
    scale = (STEP_S - beside) / max(count / speed for count, speed in zip(counts, speeds, strict=True))
    if watch is None:
        watch = BetterShares()
        watch.begin(counts)
    for step in range(steps):
        ranks = [
            RankTimes(scale * count / speed * chosen.uniform(1 - noise, 1 + noise), 0.0, beside)
            for count, speed in zip(counts, speeds, strict=True)
        ]
        if watch.take(max(STEP_S, *(rank.busy_s for rank in ranks)), ranks):
            found.append(step)
    return found


FIVE_BLOCKS = 5 * 4
"""Steps: half a second is shorter than four of them."""


@pytest.mark.parametrize(
    ("counts", "speeds"),
    [
        ((16, 10, 3, 3), (4.0, 2.0, 1.0, 1.0)),
        ((8, 8, 8, 8), (1.0, 1.0, 1.0, 0.8)),
        ((9, 9, 9, 5), (1.0, 1.0, 1.0, 1.0)),
        ((8, 8), (1.0, 0.02)),
    ],
    ids=["a quarter too many", "a little slow", "as fast again", "much too slow for a chunk"],
)
def test_other_shares_are_wanted_where_they_win(counts, speeds):
    assert wanted(counts, speeds) == [FIVE_BLOCKS - 1], "once: while nothing changes, there is nothing new to plan with"


@pytest.mark.parametrize(
    ("counts", "speeds", "beside"),
    [
        ((16, 8, 4, 4), (4.0, 2.0, 1.0, 1.0), 0.1 * STEP_S),
        ((1, 1, 1, 1), (1.0, 1.0, 1.0, 0.6), 0.0),
        ((8, 8, 8, 8), (1.0, 1.0, 1.0, 0.8), 0.6 * STEP_S),
    ],
    ids=["the best", "no finer ones", "little of a step"],
)
def test_nothing_follows_where_none_win(counts, speeds, beside):
    assert wanted(counts, speeds, beside=beside) == []


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_fifth_moves_nothing_and_hides_nothing(seed):
    assert wanted((8, 8, 8, 8), (1.0, 1.0, 1.0, 1.0), noise=0.2, seed=seed) == []
    assert wanted((16, 10, 3, 3), (4.0, 2.0, 1.0, 1.0), noise=0.2, seed=seed)[0] < 2 * FIVE_BLOCKS


def test_what_is_soon_over_is_not_followed():
    watch = BetterShares()
    watch.begin((8, 8))
    assert [wanted((8, 8), (1.0, speed), 16, watch=watch) for speed in (1.0, 0.5, 1.0, 0.5, 1.0)] == [[]] * 5


def test_after_each_time_it_takes_twice_as_long():
    watch = BetterShares()
    for nth in range(4):
        watch.begin((8, 8))
        assert wanted((8, 8), (1.0, 0.5), 400, watch=watch)[0] == FIVE_BLOCKS * 2**nth - 1


def test_few_long_blocks_are_enough():
    watch = BetterShares()
    watch.begin((8, 8))
    for _ in range(5):
        watch.back_off()
    steps = [bool(watch.take(10.0, (RankTimes(4.0, 0.0, 0.0), RankTimes(8.0, 0.0, 0.0)))) for _ in range(24)]
    assert steps.index(True) == FIVE_BLOCKS - 1, "that is 200 s"


def test_what_has_been_quiet_for_long_may_change_sooner():
    watch = BetterShares()
    watch.begin((8, 8))
    watch.back_off()
    assert wanted((8, 8), (1.0, 1.0), 10 * 2 * FIVE_BLOCKS, watch=watch) == []
    watch.begin((8, 8))
    assert wanted((8, 8), (1.0, 0.5), watch=watch) == [FIVE_BLOCKS - 1]


def test_time_beside_chunks_is_told_apart():
    watch = BetterShares()
    watch.begin((4, 4))
    steps = [watch.take(0.9, (RankTimes(0.2, 0.0, 0.1), RankTimes(0.2, 0.1, 0.6))) for _ in range(FIVE_BLOCKS)]
    assert steps[-1] == (
        RankTimes(pytest.approx(0.2), 0.0, pytest.approx(0.1)),
        RankTimes(*map(pytest.approx, (0.2, 0.1, 0.6))),
    )


def test_one_rank_alone_has_nothing_to_share():
    watch = BetterShares()
    watch.begin((8,))
    assert wanted((8,), (1.0,), watch=watch) == []
