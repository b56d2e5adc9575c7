"""When links are worth probing again."""

from typing import Any

import pytest

from nfold.core.trace import ReductionParts, Span, StepParts, StepTrace, transfers_s
from nfold.runtime.measuring.slowness import (
    NUM_STEPS,
    ProbeSpacing,
    Slowness,
    expected_times_s,
    expected_waits_s,
    times_s,
)

B0, B1 = "the reduction of b0", "the reduction of b1"


def parts(**durations_s: tuple[float, ...]) -> list[ReductionParts]:
    return [
        ReductionParts(step=0, rank=rank, reduction=name, queue_s=0.0, duration_s=seconds, sent_bytes=1)
        for name, each in durations_s.items()
        for rank, seconds in enumerate(each)
    ]


def step(**durations_s: tuple[float, ...]) -> dict[str, float]:
    return times_s((), parts(**durations_s))


def drifting(*communication_s: float) -> dict[str, float]:
    rest = dict.fromkeys(("step_s", "input_s", "forward_s", "backward_s", "update_s", "other_s"), 0.0)
    rows = [
        StepParts(step=0, rank=rank, communication_s=seconds, sent_bytes=1, samples=1, **rest)
        for rank, seconds in enumerate(communication_s)
    ]
    return times_s(rows, ())


def span(rank: int, kind: Any, purpose: Any, start_s: float, end_s: float, reduction: str = "b0") -> Span:
    return Span(rank=rank, kind=kind, name="", purpose=purpose, start_s=start_s, end_s=end_s, reduction=reduction)


def test_a_transfer_is_what_the_last_rank_saw() -> None:
    assert transfers_s(parts(b0=(0.5, 0.1, 0.3), b1=(0.2, 0.25))) == {"b0": 0.1, "b1": 0.2}


def test_what_is_slow_for_long_enough_is_named_with_its_figures() -> None:
    slowness = Slowness({B0: 0.1, B1: 0.1})
    for _ in range(NUM_STEPS - 1):
        assert slowness.take(step(b0=(0.2, 0.9), b1=(0.3, 0.9))) is None
    slow = slowness.take(step(b0=(0.2, 0.9), b1=(0.3, 0.9)))
    assert slow is not None
    assert (slow.what, slow.expected_s, slow.measured_s) == (B1, 0.1, 0.3)


@pytest.mark.parametrize(
    ("expected_s", "measured_s"),
    [(0.1, 0.15), (0.001, 0.0055)],
    ids=["not slow enough", "too little to be worth a probe"],
)
def test_a_little_slower_is_not_slow(expected_s: float, measured_s: float) -> None:
    slowness = Slowness({B0: expected_s})
    assert all(slowness.take(step(b0=(measured_s,))) is None for _ in range(3 * NUM_STEPS))


def test_waiting_for_a_peer_and_a_short_spell_are_not_slow() -> None:
    slowness = Slowness({B0: 0.1})
    for index in range(5 * NUM_STEPS):
        spell = 2.0 if index % NUM_STEPS < NUM_STEPS // 2 - 1 else 0.1
        assert slowness.take(step(b0=(spell, 5.0))) is None


def test_links_that_stay_slow_are_probed_once_and_again_when_they_get_slower() -> None:
    slowness = Slowness({B0: 0.1})
    found = [slowness.take(step(b0=(0.4,))) for _ in range(NUM_STEPS)]
    assert found[-1] is not None
    slowness.accept()
    assert all(slowness.take(step(b0=(0.4,))) is None for _ in range(3 * NUM_STEPS))
    slower = [slowness.take(step(b0=(0.8,))) for _ in range(NUM_STEPS)]
    assert slower[-1] is not None
    assert slower[-1].expected_s == 0.4


def feed(slowness: Slowness, seconds: float, steps: int = NUM_STEPS) -> list[Any]:
    return [slowness.take(step(b0=(seconds,))) for _ in range(steps)]


def test_links_that_are_fast_again_are_probed_but_never_those_that_are_only_faster_than_predicted() -> None:
    slowness = Slowness({B0: 0.1})
    assert feed(slowness, 0.02, 3 * NUM_STEPS) == [None] * 3 * NUM_STEPS
    assert any(feed(slowness, 0.4))
    slowness.accept()
    again = feed(slowness, 0.1)
    assert again[:-1] == [None] * (NUM_STEPS - 1)
    assert (again[-1].expected_s, again[-1].measured_s) == (0.4, 0.1)
    slowness.accept()
    assert feed(slowness, 0.02, 9 * NUM_STEPS) == [None] * 9 * NUM_STEPS


@pytest.mark.parametrize("hosts_change", [False, True])
def test_links_that_come_and_go_are_probed_ever_more_seldom(hosts_change: bool) -> None:
    spacing, probes, now = ProbeSpacing(), [], 0.4
    slowness = Slowness({B0: 0.1}, spacing)
    for index in range(100 * NUM_STEPS):
        if slowness.take(step(b0=(now,))) is not None:
            slowness.accept()
            probes.append((index + 1) // NUM_STEPS)
            now = 0.4 if hosts_change else 0.5 - now
            slowness = Slowness({B0: 0.1}, spacing) if hosts_change else slowness
    assert probes == [1, 2, 4, 8, 16, 32, 64]


def test_buckets_without_a_prediction_are_not_watched() -> None:
    assert all(Slowness({}).take(step(b0=(9.0,))) is None for _ in range(2 * NUM_STEPS))


def test_where_activations_travel_each_rank_is_watched_too() -> None:
    spans = (
        span(0, "F", "", 0.0, 1.0, reduction=""),
        span(0, "SEND", "activation", 1.0, 1.5, reduction=""),
        span(1, "RECV", "activation", 1.0, 1.5, reduction=""),
        span(1, "F", "", 1.5, 2.0, reduction=""),
    )
    trace = StepTrace(step=0, origin="simulated", step_s=(1.5, 2.0), spans=spans)
    expected = {"waiting of rank 0 for messages": 1.0, "waiting of rank 1 for messages": 1.5}
    assert expected_times_s(trace) == pytest.approx(expected)


def test_a_worker_of_an_asynchronous_plan_is_watched_alone() -> None:
    slowness = Slowness(expected_waits_s((0.1, 0.1, 0.01), 0.12))
    *before, slow = [slowness.take(drifting(0.12, 0.1, 0.05)) for _ in range(NUM_STEPS)]
    assert before == [None] * (NUM_STEPS - 1)
    assert slow is not None
    assert (slow.what, slow.expected_s, slow.measured_s) == ("waiting of rank 2 for messages", 0.03, 0.05)


def test_a_simulated_step_says_what_to_expect() -> None:
    spans = (
        span(0, "SEND", "push", 1.0, 1.5),
        span(0, "RECV", "pull", 2.0, 3.0),
        span(1, "SEND", "push", 2.0, 2.25),
        span(1, "RECV", "pull", 2.5, 3.0),
        span(2, "RECV", "push", 1.0, 1.5),
        span(2, "SEND", "pull", 2.5, 3.0),
        span(0, "SEND", "statistics", 0.0, 9.0, reduction="statistics/0"),
    )
    trace = StepTrace(step=0, origin="simulated", step_s=(3.0,) * 3, spans=spans)
    assert expected_times_s(trace) == {B0: 1.0}
