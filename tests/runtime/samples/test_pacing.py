"""So many bytes pass in a second, and a piece takes no longer than a gradient may wait."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from nfold.planning.residency.model.pieces import LEAST_PIECE_BYTES, MOST_PIECE_BYTES, piece_bytes_on
from nfold.runtime.samples.pacing import Pacer


def test_a_piece_takes_5_ms_of_a_slow_link():
    assert piece_bytes_on(None) == piece_bytes_on(1e9) == MOST_PIECE_BYTES
    assert piece_bytes_on(1e6) == 5_000
    assert piece_bytes_on(1.0) == LEAST_PIECE_BYTES


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


@given(st.lists(st.integers(1, 1000), min_size=1), st.integers(1, 10_000))
def test_what_passes_has_had_its_time(sizes, bytes_per_s):
    clock = Clock()
    pacer = Pacer(bytes_per_s, clock)
    for done, size in enumerate(sizes):
        clock.now_s += pacer.waits_s() + 1e-9
        pacer.take(size)
        assert abs(clock.now_s - sum(sizes[:done]) / bytes_per_s) < 1e-6


def test_what_was_not_used_is_not_saved_up():
    clock = Clock()
    pacer = Pacer(10.0, clock)
    clock.now_s = 100.0
    pacer.take(20)
    assert pacer.waits_s() == 2.0


def test_a_little_may_pass_before_its_time():
    pacer = Pacer(10.0, Clock(), ahead_bytes=30)
    pacer.take(20)
    assert pacer.waits_s() == 0.0
    pacer.take(20)
    assert pacer.waits_s() == 1.0


def test_another_rate_counts_at_once():
    clock = Clock()
    pacer = Pacer(10.0, clock)
    pacer.take(20)
    pacer.change(40.0)
    assert pacer.waits_s() == 0.5
    pacer.change(0)
    assert pacer.waits_s() is None
    pacer.change(None)
    assert pacer.waits_s() == 0.0


def test_who_waits_hears_of_a_change_and_of_the_end():
    for wake in (lambda pacer: pacer.change(None), Pacer.close):
        pacer, passed = Pacer(0), threading.Event()
        waiting = threading.Thread(target=lambda pacer=pacer, passed=passed: (pacer.take(1), passed.set()))
        waiting.start()
        assert not passed.is_set()
        wake(pacer)
        assert passed.wait(10)
