"""Capture computes with one thread where that is quick, or quicker than several."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from nfold.capture.batches.example import Example
from nfold.profiling.few_threads import few_threads
from nfold.profiling.measure import Meter

EXAMPLE = Example(make=lambda size, _: (torch.ones(size, 2), torch.ones(size, 1)))


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("alone_s", "worked_s", "together_s", "threads"),
    [
        (0.1, 0.1, 0.01, 1),  # quick
        (9.0, 0.1, 0.01, 1),  # quick, but for what others compute
        (2.0, 2.0, 1.0, 3),
        (2.0, 2.0, 3.0, 1),  # they wait for each other
    ],
)
def test_the_quicker_number_of_threads(alone_s: float, worked_s: float, together_s: float, threads: int) -> None:
    # Each pass reads a clock when it begins, and the second one when it ends as well.
    now = iter([0.0, 0.0, alone_s, 0.0, 0.0, together_s])
    worked = iter([0.0, 0.0, worked_s, 0.0, 0.0, worked_s])
    meter = Meter(clock=lambda: next(now))
    with few_threads(lambda: nn.Linear(2, 1), nn.functional.mse_loss, EXAMPLE, meter, lambda: next(worked)):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 3


def test_a_program_that_fails_is_left_to_the_capture_and_threads_are_put_back() -> None:
    meter = Meter(clock=map(float, itertools.count()).__next__)
    with few_threads(lambda: nn.Linear(7, 1), nn.functional.mse_loss, EXAMPLE, meter):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
