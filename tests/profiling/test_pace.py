"""How fast and how steadily a rank computes, by a clock that the test turns."""

from dataclasses import replace
from itertools import accumulate, chain, repeat

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from nfold.core.profile import Pace
from nfold.profiling import bit_s, measure_pace
from nfold.program import Program

DATA = TensorDataset(torch.zeros(8, 4), torch.zeros(8, dtype=torch.long))
PROGRAM = Program(
    model=lambda: nn.Linear(4, 2),
    loss=nn.functional.cross_entropy,
    optimizer=lambda params: torch.optim.SGD(params, lr=0.1),
    train_data=lambda: DATA,
    batch_size=4,
)
BOOKKEEPING_S = (4.0, 2.0, 3.0, 6.0, 9.0)
"""Five times 2000 bits."""
SLOWER_S = (4.5, 7.0, 6.0, 5.0, 3.0)


def paced(
    passes_s: list[float],
    budget_s: float,
    *,
    longest_pass_s: float = 0.0,
    worked_s: list[float] | None = None,
    cores: float = 1.0,
    before_s: tuple[float, ...] = SLOWER_S,
    after_s: tuple[float, ...] = BOOKKEEPING_S,
) -> Pace:
    readings = accumulate(chain([0.0], passes_s, repeat(1000.0)))
    before, after = ([each for took_s in rounds for each in (0.0, took_s)] for rounds in (before_s, after_s))
    processor = accumulate(chain(before, [0.0], worked_s or passes_s, after))
    return measure_pace(
        PROGRAM,
        DATA,
        chunk_size=2,
        num_threads=1,
        budget_s=budget_s,
        longest_pass_s=longest_pass_s,
        clock=lambda: next(readings),
        processor_clock=lambda: next(processor),
        cores=cores,
    )


def test_passes_are_made_until_the_budget_is_spent() -> None:
    assert paced([1.0, 1.0, 1.0, 1.0], budget_s=4.0) == Pace(mean_s=1.0, deviation_s=0.0, bookkeeping_s=0.002)


def test_one_pass_is_made_at_least_and_says_nothing_of_steadiness() -> None:
    assert paced([7.0], budget_s=1.0) == Pace(mean_s=7.0, deviation_s=0.0, bookkeeping_s=0.002)


def test_all_ranks_compute_until_the_slowest_is_expected_to_have_made_a_few_passes() -> None:
    worked_s = [0.5] * 8
    assert paced([1.0] * 7 + [5.0], 2.0, longest_pass_s=2.0, worked_s=worked_s).mean_s == 1.5, "eight seconds"
    four_budgets = paced([1.0] * 5 + [5.0, 9.0], 2.0, longest_pass_s=5.0, worked_s=worked_s)
    assert four_budgets.mean_s == pytest.approx(10 / 6)


def test_two_passes_warm_up_and_do_not_count() -> None:
    made: list[str] = []

    def model() -> nn.Module:
        layer = nn.Linear(4, 2)
        layer.register_forward_hook(lambda *_: made.append("pass"))
        return layer

    def clock() -> float:
        made.append("clock")
        return 1.0 * len(made)

    measure_pace(
        replace(PROGRAM, model=model), DATA, chunk_size=2, num_threads=1, budget_s=0.0, longest_pass_s=1.0, clock=clock
    )
    assert made == ["pass", "pass", "clock", "pass", "clock"]


def test_the_spread_is_that_of_the_quartiles() -> None:
    pace = paced([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0], budget_s=15.0, worked_s=[1.0] * 8)
    assert pace.mean_s == pytest.approx(15 / 8)
    assert pace.deviation_s == pytest.approx((2.75 - 1.0) / 1.349)


def test_with_a_part_of_a_core_the_processor_says_how_steady_passes_are() -> None:
    """Those that met the quota took four times as long, and computed as much."""
    waits = [1.0, 4.0, 1.0, 4.0, 1.0, 4.0, 1.0, 4.0]
    assert paced(waits, budget_s=20.0, worked_s=[1.0] * 8, cores=0.4) == Pace(
        mean_s=2.5, deviation_s=0.0, bookkeeping_s=0.002
    )
    assert paced(waits, budget_s=20.0, worked_s=[1.0] * 8, cores=2.0).deviation_s == pytest.approx(3.0 / 1.349)


def test_one_interruption_is_no_unsteadiness() -> None:
    waited = paced([1.0] * 9 + [11.0], budget_s=20.0, worked_s=[1.0] * 10)
    assert waited == Pace(mean_s=2.0, deviation_s=0.0, bookkeeping_s=0.002)


def test_passes_for_which_the_processor_worked_longer_than_is_typical_do_not_count_for_more() -> None:
    """Neighbours of the machine slow it down for a moment."""
    held_up = paced([1.0] * 7 + [2.0] * 3, budget_s=13.0)
    assert held_up.mean_s == pytest.approx(1.0)
    limited = paced([4.0] * 7 + [8.0] * 3, budget_s=52.0, worked_s=[1.0] * 7 + [2.0] * 3, cores=0.25)
    assert limited.mean_s == pytest.approx(4.0)
    assert paced([1.0] * 4, 4.0, worked_s=[0.0] * 4).mean_s == 1.0, "a device did it all"


def test_bookkeeping_counts_as_it_was_when_nobody_slowed_it_down() -> None:
    assert paced([1.0] * 4, 4.0, before_s=BOOKKEEPING_S, after_s=SLOWER_S).bookkeeping_s == 0.002
    assert paced([1.0] * 4, 4.0, before_s=SLOWER_S, after_s=SLOWER_S).bookkeeping_s == 0.0025


def test_bookkeeping_takes_some_time_and_not_long() -> None:
    pace = measure_pace(PROGRAM, DATA, chunk_size=2, num_threads=1, budget_s=0.0, longest_pass_s=1.0)
    assert 1e-8 < pace.bookkeeping_s < 1e-4


def test_a_bit_of_bookkeeping_counts_all_that_passes_meanwhile():
    """For a fifth of a second: here three rounds of 2000 bits, between two looks each."""
    ticks = accumulate(chain([0.0], repeat(0.021)))
    assert bit_s(lambda: next(ticks)) == pytest.approx(11 * 0.021 / (3 * 2000))
