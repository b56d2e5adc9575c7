"""An update is measured a part at a time, and comes to the state of the whole."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nfold.capture.stepping import Stepping
from nfold.profiling import updating
from nfold.profiling.measure import Meter
from nfold.profiling.memory import optimizer_bytes
from nfold.profiling.updating import measure_update, parts_of
from nfold.program import Program


def weights(*sizes: int) -> list[tuple[str, nn.Parameter]]:
    made = [(f"w{index}", nn.Parameter(torch.ones(size))) for index, size in enumerate(sizes)]
    for _, weight in made:
        weight.grad = torch.ones_like(weight)
    return made


def program(**fields: Any) -> Program:
    return Program(model=lambda: nn.Linear(1, 1), loss=nn.functional.mse_loss, train_data=list, batch_size=1, **fields)


@given(st.lists(st.integers(1, 40), min_size=1), st.integers(4, 200))
def test_parts_are_all_weights_in_order_and_none_is_larger_than_it_must_be(sizes: list[int], part_bytes: int) -> None:
    all_weights = weights(*sizes)
    parts = list(parts_of(all_weights, part_bytes))
    assert [each for part in parts for each in part] == all_weights
    for part in parts:
        assert len(part) == 1 or sum(each.nbytes for _, each in part) <= part_bytes


@pytest.mark.parametrize(("whole", "steps_at_once"), [(False, [1, 2]), (True, [3])])
def test_the_state_of_parts_adds_up(monkeypatch: pytest.MonkeyPatch, whole: bool, steps_at_once: list[int]) -> None:
    monkeypatch.setattr(updating, "PART_BYTES", 4 * 100)
    seen: list[int] = []

    def adam(parameters: Any) -> torch.optim.Optimizer:
        seen.append(len(parameters))
        return torch.optim.Adam(parameters, lr=0.1)

    tried, given_weights = program(optimizer=adam, clip_norm=1.0), weights(80, 60, 40)
    timing, state_bytes = measure_update(tried, given_weights, Meter(), 0.01, whole=whole)
    assert seen == steps_at_once
    together = Stepping.of(tried).build(given_weights).optimizer
    together.step()
    assert state_bytes == optimizer_bytes(together)
    assert timing.median_s > 0
    assert timing.repeats >= 1
