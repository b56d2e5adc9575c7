"""How far ranks may run ahead of what all have reported."""

from types import SimpleNamespace

import pytest

from nfold.runtime.coordinator.progress import FIRST_WINDOW, Progress


@pytest.mark.parametrize(("asynchrony", "is_open"), [(None, True), (SimpleNamespace(), False)])
def test_who_cannot_be_called_back_has_few_evaluations_before_him(asynchrony, is_open):
    progress = Progress((0, 1), SimpleNamespace(asynchrony=asynchrony), 0, 5)
    for step, what in ((5, "checkpoint"), (5, "evaluated"), (10, "checkpoint")):
        progress.pending.append((step, what, {0, 1}))
    assert progress.window() >= FIRST_WINDOW
    progress.pending.append((10, "evaluated", {0, 1}))
    assert (progress.window() > 0) is is_open
    progress.pending.pop(0)
    assert progress.window() >= FIRST_WINDOW
