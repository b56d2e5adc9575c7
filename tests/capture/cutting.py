"""Cuts captured programs and compares what the pieces compute."""

import random
from collections.abc import Sequence
from typing import Any

import torch

from nfold.capture.computing.random import CellRandom
from nfold.capture.cutting.captured import Captured
from nfold.capture.cutting.replay import play_step, segments_of


def cut_at_random(names: Sequence[str], generator: random.Random) -> list[list[str]]:
    """Cut a list into runs."""
    places = sorted(generator.sample(range(1, len(names)), generator.randint(1, len(names) - 1)))
    return [list(names[a:b]) for a, b in zip([0, *places], [*places, len(names)], strict=True)]


def play(captured: Captured, pieces: Sequence[Sequence[str]], batch: Any, chunk: int = 0) -> dict[str, Any]:
    """Return the loss and the gradients of one chunk, cut into pieces."""
    draws = CellRandom(5)
    draws.enter(2, chunk)
    captured.model.zero_grad(set_to_none=True)
    found = {"loss": play_step(captured, segments_of(captured, pieces, draws), batch)}
    return found | {name: parameter.grad for name, parameter in captured.model.named_parameters()}


def assert_equal(found: dict[str, Any], expected: dict[str, Any], tolerance: float = 1e-10) -> None:
    """Compare losses and gradients, absent ones included."""
    absent = {name for name, value in expected.items() if value is None}
    assert {name for name, value in found.items() if value is None} == absent
    for name in expected.keys() - absent:
        torch.testing.assert_close(
            found[name], expected[name], rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )
