"""How far ranks may run ahead of what all have reported."""

from types import SimpleNamespace
from typing import Any

import pytest

from nfold.core.trace import StepParts
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.progress import FIRST_WINDOW, Progress

EPOCHS = EpochSteps.even(5)


@pytest.mark.parametrize(("asynchrony", "is_open"), [(None, True), (SimpleNamespace(), False)])
def test_who_cannot_be_called_back_has_few_evaluations_before_him(asynchrony, is_open):
    progress = Progress((0, 1), SimpleNamespace(asynchrony=asynchrony), 0, EPOCHS)
    for step, what in ((5, "checkpoint"), (5, "evaluated"), (10, "checkpoint")):
        progress.pending.append((step, what, {0, 1}))
    assert progress.window() >= FIRST_WINDOW
    progress.pending.append((10, "evaluated", {0, 1}))
    assert (progress.window() > 0) is is_open
    progress.pending.pop(0)
    assert progress.window() >= FIRST_WINDOW


def report(step: int, rank: int, step_s: float = 0.5) -> dict[str, Any]:
    parts = StepParts.from_row([step, rank, step_s, *[0.0] * 6, 7, 3])
    given = {"spans": [], "reductions": [], "begin_s": 0.0, "notes": []}
    return {"step": step, "parts": parts.to_row(), "losses": [[rank, 0.25]], **given}


def told(rank: int, *steps: int, under_way: int | None = None) -> ev.Received:
    losses = None if under_way is None else {"step": under_way, "losses": [[rank, 0.25]], "samples": 3}
    reports = [report(step, rank) for step in steps]
    return ev.Received(rank, {"is": "steps", "steps": reports, "samples": [], "under_way": losses})


def test_a_step_that_is_over_counts_once_all_have_told_its_losses():
    progress = Progress((0, 1), SimpleNamespace(asynchrony=None, placement=SimpleNamespace(working=(0, 1))), 4, EPOCHS)
    progress.take(told(0, under_way=4))
    assert progress.countable == 4, "of the other nothing is known"
    progress.take(told(1, under_way=4))
    assert (progress.done, progress.countable) == (4, 5)
    progress.take(told(0, 4, under_way=5))
    (done,) = progress.count_to(5)
    assert (done.step, done.loss, progress.done, progress.countable) == (4, 0.5, 5, 5)
    known, unknown = done.parts
    assert (known.sent_bytes, unknown.step_s, unknown.other_s, unknown.samples) == (7, 0.5, 0.5, 3)


def test_losses_of_a_step_that_all_have_reported_are_forgotten():
    progress = Progress((0, 1), SimpleNamespace(asynchrony=None, placement=SimpleNamespace(working=(0, 1))), 4, EPOCHS)
    progress.take(told(0, under_way=4))
    progress.take(told(0, 4))
    assert [each.step for each in progress.take(told(1, 4)) if hasattr(each, "loss")] == [4]
    progress.take(told(1, under_way=4))
    assert progress.countable == 5


@pytest.mark.parametrize(
    ("asynchrony", "steps_s", "step_s"),
    [(None, [0.5, 0.5, 9.0, 0.01, 0.5], 0.5), (SimpleNamespace(), [9.0, *[0.5, 0.0] * 8], 0.25)],
)
def test_a_step_lasts_as_long_as_most_do_and_where_nobody_waits_for_it_as_the_last_ones_on_average(
    asynchrony, steps_s, step_s
):
    """After a checkpoint samples are loaded. Where slices of two steps end together, the second one takes no time."""
    serves = SimpleNamespace(shares=(SimpleNamespace(rank=0),))
    progress = Progress((0,), SimpleNamespace(asynchrony=asynchrony, reductions=(serves,)), 0, EPOCHS)
    assert progress.step_s is None
    reports = [report(step, 0, seconds) for step, seconds in enumerate(steps_s)]
    progress.take(ev.Received(0, {"is": "steps", "steps": reports, "samples": [], "under_way": None}))
    assert progress.step_s == step_s
