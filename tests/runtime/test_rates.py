"""What a transport is told of the ways to its peers."""

from math import inf

from nfold.runtime.rates import expect_nothing, expect_rates


class Told:
    rank, world_size = 1, 5

    def __init__(self) -> None:
        self.rates: dict[int, float] = {}

    def expect_rate(self, peer: int, bytes_per_s: float) -> None:
        self.rates[peer] = bytes_per_s


def test_peers_are_reached_at_the_speed_of_the_own_uplink_but_for_those_on_the_node() -> None:
    told = Told()
    expect_rates(told, ("a", "b", "b", "c"), (1e6, 2e6, 2e6, 3e6))
    assert told.rates == {0: 2e6, 2: inf, 3: 2e6}
    expect_rates(told, ("b", "b", "b", "b"), (None,) * 4)
    assert told.rates == dict.fromkeys((0, 2, 3), inf)


def test_nothing_is_expected_once_a_plan_is_over() -> None:
    told = Told()
    expect_rates(told, ("a", "b", "c", "d"), (1e6,) * 4)
    expect_nothing(told)
    assert told.rates == dict.fromkeys((0, 2, 3, 4), inf)
