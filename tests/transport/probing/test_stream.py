"""What a stream's rules make of links in virtual time: rates, bursts, and how soon they end."""

from dataclasses import dataclass

import pytest

from nfold.transport.probing.probe import ROUND_TRIPS
from nfold.transport.probing.stream import FIRST_BYTES, MAX_BYTES, BlockWindow, RateMeter

MBIT = 1e6 / 8


@dataclass
class VirtualLink:
    """One direction of a link: a token bucket in front of a line."""

    bytes_per_s: float
    burst_bytes: float = 0.0
    latency_s: float = 1e-4
    line_bytes_per_s: float = 10_000 * MBIT
    tokens: float = -1.0
    free_s: float = 0.0

    def arrival_s(self, sent_s: float, num_bytes: int) -> float:
        """Return when the last byte of a block arrives."""
        if self.tokens < 0:
            self.tokens = self.burst_bytes
        start_s = max(sent_s, self.free_s)
        self.tokens = min(self.burst_bytes, self.tokens + (start_s - self.free_s) * self.bytes_per_s)
        at_once = min(self.tokens, num_bytes)
        self.tokens -= at_once
        self.free_s = start_s + at_once / self.line_bytes_per_s + (num_bytes - at_once) / self.bytes_per_s
        return self.free_s + self.latency_s


def play(link: VirtualLink, budget_s: float = 0.12) -> tuple[float, float]:
    """Let a stream run over a link, and return the rate it shows and when the link is quiet again."""
    giver, taker, meter = BlockWindow(), BlockWindow(), RateMeter(budget_s)
    on_way: list[float] = []
    now_s = 0.0
    while not meter.is_enough():
        on_way += [link.arrival_s(now_s, size) for size in giver.permit()]
        taker.permit()
        assert taker.sizes == giver.sizes
        now_s = on_way.pop(0)
        taker.arrive()
        giver.arrive()
        meter.arrived(now_s, taker.arrived_bytes)
        now_s += link.latency_s  # of the answer
    assert taker.num_on_way == len(on_way)
    return meter.bytes_per_s(), max([now_s, *on_way])


@pytest.mark.parametrize("mbit", [1, 2, 5, 10, 50, 100, 200, 1000])
@pytest.mark.parametrize("burst_bytes", [0, 16 << 10, 64 << 10, 128 << 10])
def test_a_burst_does_not_make_a_link_look_fast(mbit: int, burst_bytes: int) -> None:
    bytes_per_s, _ = play(VirtualLink(mbit * MBIT, burst_bytes))
    assert bytes_per_s == pytest.approx(mbit * MBIT, rel=0.02)


@pytest.mark.parametrize(("mbit", "most_s"), [(1, 0.8), (5, 0.6), (50, 0.2), (1000, 0.17)])
def test_a_slow_link_is_soon_quiet_again(mbit: int, most_s: float) -> None:
    _, end_s = play(VirtualLink(mbit * MBIT, burst_bytes=32 << 10))
    assert end_s < most_s


@pytest.mark.parametrize("latency_s", [0.002, 0.01])
def test_latency_does_not_make_a_link_look_slow(latency_s: float) -> None:
    budget_s = max(0.12, ROUND_TRIPS * 2 * latency_s)
    bytes_per_s, _ = play(VirtualLink(200 * MBIT, latency_s=latency_s), budget_s)
    assert bytes_per_s == pytest.approx(200 * MBIT, rel=0.03)


def test_what_is_on_its_way_is_bounded_and_never_nothing() -> None:
    flow = BlockWindow()
    for _ in range(2000):
        flow.permit()
        assert 0 < flow.sent_bytes - flow.arrived_bytes <= min(MAX_BYTES, FIRST_BYTES + flow.arrived_bytes // 2)
        flow.arrive()


def test_blocks_grow_so_that_a_fast_link_needs_few() -> None:
    flow = BlockWindow()
    while flow.arrived_bytes < 1 << 30:
        flow.permit()
        flow.arrive()
    assert flow.num_arrived < 2200


def test_one_late_block_is_enough_for_a_rate() -> None:
    meter = RateMeter(0.1)
    for index in range(7):
        meter.arrived(index * 0.01, 100 * index)
    assert not meter.is_enough()
    meter.arrived(1.06, 700)
    assert meter.is_enough()
    assert meter.bytes_per_s() == pytest.approx(100)
