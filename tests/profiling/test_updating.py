"""An update is measured a part at a time, and comes to the state of the whole."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.optimizers.update_scope import Scope
from nfold.profiling import updating
from nfold.profiling.measure import Meter
from nfold.profiling.measured_memory import optimizer_bytes
from nfold.profiling.updating import in_slices, measure_update, parts_of
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


@given(st.lists(st.integers(1, 40), min_size=1), st.integers(4, 200))
def test_slices_are_small_and_hold_the_weights_own_memory(sizes: list[int], part_bytes: int) -> None:
    all_weights = weights(*sizes)
    slices = list(in_slices(all_weights, part_bytes))
    assert all(piece.nbytes < part_bytes + 4 for _, piece in slices)
    for _, piece in slices:
        piece.data += 1
        assert piece.grad is not None
        piece.grad += 2
    for name, weight in all_weights:
        assert weight.grad is not None
        assert (weight == 2).all()
        assert (weight.grad == 3).all()
        assert sum(piece.numel() for each, piece in slices if each == name) == weight.numel()


@pytest.mark.parametrize(
    ("scope", "steps_at_once"), [("element", [1, 2, 1, 1, 1]), ("parameter", [1, 2, 1]), ("model", [4])]
)
def test_the_state_of_parts_adds_up(monkeypatch: pytest.MonkeyPatch, scope: Scope, steps_at_once: list[int]) -> None:
    monkeypatch.setattr(updating, "PART_BYTES", 4 * 100)
    now, seen = 0.0, []

    class Adam(torch.optim.Adam):
        def step(self, closure: Any = None) -> None:
            nonlocal now
            now += 1e-3 + 1e-5 * sum(each.numel() for each in self.param_groups[0]["params"])
            super().step(closure)

    def adam(parameters: Any) -> torch.optim.Optimizer:
        seen.append(len(parameters))
        return Adam(parameters, lr=0.1)

    tried, given_weights = program(optimizer=adam, clip_norm=1.0), weights(80, 60, 40, 290)
    meter = Meter(clock=lambda: now)

    def a_pass() -> tuple[float, float]:
        nonlocal now
        now += 1e-2
        return 4e-3, 6e-3

    timing, call_s, state_bytes = measure_update(
        tried, given_weights, meter, 0.5, scope=scope, a_pass=a_pass, pass_s=1e-2
    )
    assert seen == (steps_at_once if scope == "model" else [*steps_at_once, 1]), "and one weight alone"
    assert timing.median_s == pytest.approx(len(steps_at_once) * 1e-3 + 470e-5)
    assert call_s == pytest.approx(timing.median_s if scope == "model" else 1e-3 + 40e-5)
    together = Stepping.of(tried).build(given_weights).optimizer
    together.step()
    counters = 4 * (sum(steps_at_once) - len(given_weights))  # each slice counts its steps by itself
    assert state_bytes == optimizer_bytes(together) + counters
    assert timing.median_s > 0
    assert timing.repeats >= 1


@pytest.mark.parametrize("slower", [1.0, 2.0])
@pytest.mark.parametrize(("weights_s", "is_short"), [(updating.SHORT_S / 2, True), (updating.SHORT_S * 2, False)])
def test_short_updates_are_timed_after_a_pass(weights_s: float, is_short: bool, slower: float) -> None:
    """And long ones by themselves: a pass may take long, and leaves nothing in the caches that would count for them.

    What a call costs is always timed after one. Where the pass is slower than it was before, so is what comes after it.
    """
    now, heated, seen = 0.0, True, []

    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            nonlocal now, heated
            count = len(self.param_groups[0]["params"])
            now += count * weights_s / 2 + (0 if heated else 1e-4)
            seen.append((count, heated))
            heated = True

    def a_pass() -> tuple[float, float]:
        nonlocal now, heated
        now, heated = now + 0.01, False
        return 0.004, 0.006

    tried = program(optimizer=lambda parameters: Counting(parameters, lr=0.1))
    meter = Meter(clock=lambda: now)
    timing, call_s, _ = measure_update(
        tried, weights(8, 9), meter, 0.2, scope="parameter", a_pass=a_pass, pass_s=0.01 / slower
    )
    assert timing.median_s == pytest.approx((weights_s + 1e-4) / slower if is_short else weights_s)
    assert call_s == pytest.approx((weights_s / 2 + 1e-4) / slower)
    assert ((2, False) in seen) == is_short
    assert (1, True) not in seen


def test_state_of_optimizers_within_is_counted_once() -> None:
    class Outer(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            self.inner = torch.optim.Adam(params, lr=0.1)
            super().__init__(params, {})
            self.slow = [each.detach().clone() for each in params]
            self.again = self.slow

        def step(self, closure: Any = None) -> None:
            self.inner.step()

    (_, weight), *_ = weights(1000)
    optimizer = Outer([weight])
    optimizer.step()
    assert optimizer_bytes(optimizer) == (2 + 1) * weight.nbytes + 4
