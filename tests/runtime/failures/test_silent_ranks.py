"""Who has fallen silent, in virtual time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.runtime.control.events import ClockTick
from nfold.runtime.failures.silent_ranks import OWN_GAP_S, DetectedChanges, FailureDetector, Patience

NOTHING = DetectedChanges(silent=(), back=(), lost=())
PATIENCE = Patience(noticed_s=10.0, lost_s=60.0, loading_s=600.0)


def watch(
    failure_detector: FailureDetector,
    begin_s: float,
    end_s: float,
    heard_s: dict[int, float],
    *,
    loading: bool = False,
    ranks=(0, 1),
):
    """Look once a second; ranks without an entry are heard all the time. Return what was news, and when."""
    found = []
    for now in range(int(begin_s), int(end_s) + 1):
        tick = ClockTick(float(now), {rank: heard_s.get(rank, float(now)) for rank in (0, 1)})
        news = failure_detector.look(tick, ranks, loading=loading)
        if news != NOTHING:
            found.append((now, news))
    return found


def test_ranks_that_are_heard_are_no_news():
    assert watch(FailureDetector(PATIENCE), 0, 1000, {}) == []


def test_a_silent_rank_is_noticed_once_and_given_up_later():
    found = watch(FailureDetector(PATIENCE), 0, 60, {1: 0.0})
    assert found == [
        (10, DetectedChanges(silent=(1,), back=(), lost=())),
        (60, DetectedChanges(silent=(), back=(), lost=(1,))),
    ]


def test_a_rank_that_comes_back_is_told_and_may_be_noticed_again():
    failure_detector = FailureDetector(PATIENCE)
    watch(failure_detector, 0, 20, {0: 0.0})
    assert watch(failure_detector, 21, 50, {0: 21.0}) == [
        (21, DetectedChanges(silent=(), back=(0,), lost=())),
        (31, DetectedChanges(silent=(0,), back=(), lost=())),
    ]


def test_while_ranks_load_they_have_longer():
    failure_detector = FailureDetector(PATIENCE)
    found = watch(failure_detector, 0, 600, {1: 0.0}, loading=True)
    assert [when for when, news in found if news.lost] == [600]
    assert [when for when, news in found if news.silent] == [10], "but it is told as soon"


def test_a_rank_that_is_done_may_be_silent():
    assert watch(FailureDetector(PATIENCE), 0, 100, {1: 0.0}, ranks=(0,)) == []


@pytest.mark.parametrize("gap_s", [OWN_GAP_S + 0.5, 3600.0])
def test_our_own_absence_is_nobodys_silence(gap_s):
    """The command was stopped with Ctrl-Z, or the user's loop did something else: what came meanwhile is unread."""
    failure_detector = FailureDetector(PATIENCE)
    watch(failure_detector, 0, 5, {})
    back_s = 5 + gap_s
    assert failure_detector.look(ClockTick(back_s, {0: 5.0, 1: 5.0}), (0, 1), loading=False) == NOTHING
    found = [
        (
            number,
            failure_detector.look(
                ClockTick(back_s + number, {0: back_s + number, 1: 5.0}), (0, 1), loading=False
            ).silent,
        )
        for number in range(1, 12)
    ]
    assert [number for number, silent in found if silent] == [10], "silence counts from then on"


@given(st.lists(st.floats(0.1, 4.9), max_size=60), st.integers(0, 59))
def test_beats_that_come_in_time_never_alarm_however_irregular_the_ticks(gaps, stopped_at):
    failure_detector, now_s, stopped_s = FailureDetector(PATIENCE), 100.0, None
    for index, gap_s in enumerate(gaps):
        now_s += gap_s
        if index == stopped_at:
            stopped_s = now_s
        alive = stopped_s is None
        news = failure_detector.look(ClockTick(now_s, {0: now_s - 4.0 if alive else stopped_s}), (0,), loading=False)
        silence_s = 0.0 if alive else now_s - stopped_s
        assert bool(news.lost) == (silence_s >= PATIENCE.lost_s)
        assert not (news.silent and silence_s < PATIENCE.noticed_s)
