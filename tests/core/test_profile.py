"""Seconds between and beyond the measured chunk sizes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.core.profile import ChunkTiming, OperatorProfile, Profile, Timing


def timings(points: dict[int, tuple[float, float]]) -> tuple[ChunkTiming, ...]:
    def once(seconds: float) -> Timing:
        return Timing(median_s=seconds, spread_s=0.0, repeats=1)

    return tuple(
        ChunkTiming(chunk_size=size, forward=once(forward), backward=once(backward))
        for size, (forward, backward) in points.items()
    )


def profile(points: dict[int, tuple[float, float]], **operators: dict[int, tuple[float, float]]) -> Profile:
    return Profile(
        device_kind="cpu",
        num_threads=1,
        operators=tuple(
            OperatorProfile(operator=name, timings=timings(each), saved_bytes_per_sample=len(name))
            for name, each in operators.items()
        ),
        whole=timings(points),
        update=Timing(median_s=0.0, spread_s=0.0, repeats=1),
        load_s_per_sample=0.0,
        parameter_bytes=0,
        optimizer_bytes=0,
        activation_bytes_per_sample=12.0,
        base_bytes=0,
        peak_bytes=0,
    )


@st.composite
def rising(draw: st.DrawFn) -> dict[int, tuple[float, float]]:
    """Measurements in which a larger chunk never takes less time."""
    sizes = sorted(draw(st.sets(st.integers(1, 300), min_size=1, max_size=4)))
    seconds = st.lists(st.integers(1, 1000), min_size=len(sizes), max_size=len(sizes)).map(sorted)
    return dict(zip(sizes, zip(draw(seconds), draw(seconds), strict=True), strict=True))


@given(rising())
def test_measured_points_are_exact(points):
    for size, expected in points.items():
        assert profile(points).whole_s(size) == pytest.approx(expected)


@given(rising(), st.lists(st.floats(0, 1000), min_size=2, max_size=8).map(sorted))
def test_more_samples_never_take_less_time(points, sizes):
    found = [profile(points).whole_s(size) for size in sizes]
    for side in (0, 1):
        values = [pair[side] for pair in found]
        assert all(later >= earlier - 1e-9 for earlier, later in pairwise(values))
        assert min(values) >= 0


def test_between_two_sizes_time_grows_in_a_line():
    assert profile({8: (1.0, 2.0), 16: (2.0, 6.0)}).whole_s(12) == pytest.approx((1.5, 4.0))


def test_beyond_the_largest_time_grows_in_proportion():
    assert profile({8: (1.0, 2.0), 16: (2.0, 6.0)}).whole_s(32) == pytest.approx((4.0, 12.0))


def test_below_the_smallest_the_first_slope_goes_on_down_to_the_proportional_share():
    assert profile({8: (5.0, 8.0), 16: (6.0, 24.0)}).whole_s(4) == pytest.approx((4.5, 4.0))


def test_a_smaller_chunk_that_took_longer_stays_as_it_was_measured():
    assert profile({8: (3.0, 3.0), 16: (2.0, 3.0)}).whole_s(2) == (3.0, 3.0)


def test_a_single_size_says_nothing_of_smaller_ones():
    assert profile({8: (1.0, 2.0)}).whole_s(1) == (1.0, 2.0)
    assert profile({8: (1.0, 2.0)}).whole_s(16) == (2.0, 4.0)


def test_operators_add_up_to_the_whole_model():
    found = profile({8: (1.0, 3.0)}, a={8: (1.0, 1.0)}, b={8: (3.0, 1.0)}).operators_s(8)
    assert found["a"] == pytest.approx((0.25, 1.5))
    assert found["b"] == pytest.approx((0.75, 1.5))


def test_operators_that_take_no_time_break_nothing():
    assert profile({8: (1.0, 3.0)}, a={8: (0.0, 0.0)}).operators_s(8) == {"a": (0.0, 0.0)}
    assert profile({8: (1.0, 3.0)}).operators_s(8) == {}


def test_what_operators_keep_adds_up_to_the_whole_model():
    found = profile({8: (1.0, 3.0)}, a={8: (1.0, 1.0)}, bbb={8: (3.0, 1.0)}).saved_bytes()
    assert found == pytest.approx({"a": 3.0, "bbb": 9.0})
    assert profile({8: (1.0, 3.0)}).saved_bytes() == {}
