"""Whom the network has cut off, from what each rank says it hears; and what a heartbeat says."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.runtime.control.channel import ALIVE, QueueChannel
from nfold.runtime.failures.network_cuts import QUIET_S, CutChanges, Cuts, NetworkCut
from nfold.runtime.failures.silent_ranks import Patience
from nfold.runtime.rank.heartbeat import Heartbeat, WatchedWiring

PATIENCE = Patience(noticed_s=10.0, lost_s=60.0)
EVERYBODY = (0, 1, 2, 3)


def part(cuts: Cuts, rank: int, seconds: float) -> None:
    """Let every rank say what it says when one has been out of reach for that long."""
    others = [other for other in EVERYBODY if other != rank]
    for other in others:
        cuts.hear(other, {rank: seconds} if seconds else {})
    cuts.hear(rank, dict.fromkeys(others, seconds) if seconds else {})


def test_who_hears_everybody_is_no_news():
    assert Cuts(PATIENCE).look(EVERYBODY) == CutChanges()


def test_a_rank_that_is_cut_off_is_told_once_and_given_up_later():
    cuts, told = Cuts(PATIENCE), {}
    for now in range(62):
        part(cuts, 2, float(now))
        if (news := cuts.look(EVERYBODY)) != CutChanges():
            told[now] = news
    assert list(told) == [10, 60, 61]
    assert told[10] == CutChanges(begun=(NetworkCut(rank=2, others=(0, 1, 3), silent_s=10.0),))
    assert told[60] == CutChanges(lost=(NetworkCut(rank=2, others=(0, 1, 3), silent_s=60.0),))


def test_a_cut_that_heals_is_told_and_may_come_again():
    cuts = Cuts(PATIENCE)
    part(cuts, 2, 12.0)
    assert [cut.rank for cut in cuts.look(EVERYBODY).begun] == [2]
    part(cuts, 2, 0.0)
    news = cuts.look(EVERYBODY)
    assert ([cut.rank for cut in news.healed], news.begun) == ([2], ())
    assert cuts.look(EVERYBODY) == CutChanges()
    part(cuts, 2, 11.0)
    assert [cut.rank for cut in cuts.look(EVERYBODY).begun] == [2]


def test_pairs_that_follow_a_moment_later_belong_to_the_same_cut():
    """Ranks report every two seconds, each at a time of its own."""
    cuts = Cuts(PATIENCE)
    cuts.hear(0, {3: 10.5})
    cuts.hear(1, {3: QUIET_S + 0.5})
    assert cuts.look(EVERYBODY).begun == (NetworkCut(rank=3, others=(0, 1), silent_s=10.5),)
    part(cuts, 3, 12.0)
    assert cuts.look(EVERYBODY) == CutChanges()


def test_whichever_pair_is_told_first_the_other_one_belongs_to_it():
    cuts = Cuts(PATIENCE)
    cuts.hear(2, {1: 10.5})
    assert cuts.look(EVERYBODY).begun == (NetworkCut(rank=2, others=(1,), silent_s=10.5),)
    part(cuts, 1, 11.0)
    assert cuts.look(EVERYBODY) == CutChanges(), "it is rank 1 that is cut off"


def test_a_cut_heals_only_when_both_ends_are_heard():
    """A partition may grow until it holds the coordinator too."""
    cuts = Cuts(PATIENCE)
    part(cuts, 2, 12.0)
    assert cuts.look(EVERYBODY).begun
    assert cuts.look((0, 1, 3), (2,)) == CutChanges()
    part(cuts, 2, 40.0)
    assert cuts.look(EVERYBODY) == CutChanges(), "it was told"
    part(cuts, 2, 0.0)
    assert cuts.look((0, 1, 2), (3,)) == CutChanges()
    assert [cut.others for cut in cuts.look(EVERYBODY).healed] == [(0, 1, 3)]


def test_a_rank_that_is_done_does_not_heal_a_cut():
    cuts = Cuts(PATIENCE)
    part(cuts, 2, 12.0)
    assert cuts.look(EVERYBODY).begun
    assert cuts.look((0, 1, 3)) == CutChanges(), "rank 2 has finished"
    part(cuts, 3, 12.0)
    assert cuts.look(EVERYBODY).begun
    part(cuts, 3, 0.0)
    assert [cut.others for cut in cuts.look((0, 3)).healed] == [(0,)], "ranks 1 and 2 have finished"


def test_a_cut_that_shares_a_pair_with_one_that_was_told_is_told_too():
    cuts = Cuts(PATIENCE)
    cuts.hear(0, {1: 12.0})
    assert cuts.look(EVERYBODY).begun == (NetworkCut(rank=1, others=(0,), silent_s=12.0),)
    cuts.hear(0, {1: 40.0, 2: 9.0, 3: 9.5})
    assert cuts.look(EVERYBODY) == CutChanges()
    cuts.hear(0, {1: 41.0, 2: 10.0, 3: 10.5})
    assert cuts.look(EVERYBODY).begun == (NetworkCut(rank=0, others=(2, 3), silent_s=10.5),)


def test_a_direction_that_is_cut_is_enough_and_ranks_that_are_gone_are_not_asked():
    cuts = Cuts(PATIENCE)
    cuts.hear(1, {0: 11.0})
    assert cuts.look((1,)) == CutChanges(), "rank 0 has finished"
    assert cuts.look((0, 1)).begun == (NetworkCut(rank=1, others=(0,), silent_s=11.0),)


@given(st.sets(st.sampled_from(list(combinations(range(6), 2)))))
def test_every_silent_pair_is_explained_by_exactly_one_cut(pairs):
    cuts = Cuts(PATIENCE)
    for rank in range(6):
        cuts.hear(rank, {high: 20.0 for low, high in pairs if low == rank})
    explained = [pair for cut in cuts.look(range(6)).begun for pair in cut.pairs]
    assert sorted(map(sorted, explained)) == sorted(map(list, pairs))


@pytest.fixture
def said():
    """A heartbeat and what it says."""
    near, far = QueueChannel.pair()
    heartbeat = Heartbeat(near, period_s=0.001)
    yield heartbeat, lambda: far.receive()[0]
    near.close()
    heartbeat.thread.join(10)
    assert not heartbeat.thread.is_alive()


def test_a_heartbeat_tells_who_is_silent_and_once_that_nobody_is_any_longer(said):
    heartbeat, next_sign = said
    assert next_sign() == ALIVE
    silences = iter([{1: 1.0, 2: QUIET_S}, {1: 2.0, 2: QUIET_S + 2}, {1: 0.0, 2: 0.5}])

    class Wiring:
        def listen(self):
            return "here", 1

        @property
        def connections(self):
            return self

        def silent_s(self):
            return next(silences, {})

    wiring = WatchedWiring(Wiring(), heartbeat)
    assert wiring.listen() == ("here", 1)
    while (first := next_sign()) == ALIVE:
        pass
    signs = [first, *(next_sign() for _ in range(3))]
    assert signs == [
        {**ALIVE, "silent_s": [[2, QUIET_S]], "stall": None},
        {**ALIVE, "silent_s": [[2, QUIET_S + 2]], "stall": None},
        {**ALIVE, "silent_s": [], "stall": None},
        ALIVE,
    ]


def test_a_heartbeat_tells_what_takes_too_long_and_once_that_it_is_over(said):
    heartbeat, next_sign = said
    stalls = iter([{"doing": "read samples"}] * 2)
    heartbeat.watch_tasks(lambda: next(stalls, None))
    while (first := next_sign()) == ALIVE:
        pass
    told = {**ALIVE, "silent_s": [], "stall": {"doing": "read samples"}}
    assert [first, *(next_sign() for _ in range(3))] == [told, told, {**ALIVE, "silent_s": [], "stall": None}, ALIVE]
