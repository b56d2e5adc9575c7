"""Tries whether metrics are means over the samples that they are given: no sums, and nothing of earlier calls."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from math import isclose, isfinite
from typing import Any

import torch
from torch import nn
from torch.utils.data import Subset

from nfold.capture.batches.tree import map_tensors
from nfold.capture.computing.random import seed_all
from nfold.errors import ProgramError
from nfold.program import Program
from nfold.runtime.rank.evaluation import evaluate

_FEW, _OTHERS = 8, 8
"""Samples of a trial, and calls with other outputs in between."""
_ROUNDING, _COARSE = 1e-5, 1e-3
"""Of the same computation, and of one that a type of few bits may do in another order."""


def not_means(program: Program, model: nn.Module, test: Any, device: torch.device) -> list[str]:
    """Return what gives another value for samples together than the mean over parts of them: the loss, metrics.

    What they draw is drawn from seeds that this sets.

    Args:
        program: with the metrics.
        model: untrained.
        test: the test data.
        device: where to compute.

    Raises:
        ProgramError: one is no mean over samples, or not of those alone that it is given.
    """
    few = Subset(test, range(min(_FEW, len(test))))
    with contextlib.suppress(_TooFewError), torch.no_grad():
        if program.metrics:
            _refuse_sums(program, model, few, device)
            _refuse_states(program, *_results(program, model, few, device))
        sizes = (_FEW, _FEW // 2)
        whole, halves = (
            _evaluated(replace(program, batch_size=size, chunks=None), model, few, device) for size in sizes
        )
        return [name for name in whole if not _is_same(whole[name], halves[name])]
    return []


def _is_same(one: list[float], other: list[float]) -> bool:
    """Compare what `evaluate` returns; what is no number counts as the same."""
    return isclose(one[0] / one[1], other[0] / other[1], rel_tol=_COARSE) or not isfinite(one[0] + other[0])


class _TooFewError(Exception):
    """A metric or a model wants more samples than a few."""


def _refuse_sums(program: Program, model: nn.Module, few: Any, device: torch.device) -> None:
    """Refuse a metric that is twice as large for the same samples twice."""
    together = replace(program, batch_size=2 * _FEW, chunks=None)
    same_twice = Subset(few, [*range(len(few))] * 2)
    once, twice = (_evaluated(together, model, each, device) for each in (few, same_twice))
    for name in program.metrics:
        value, double = (totals[name][0] / totals[name][1] for totals in (once, twice))
        if value and isclose(double, 2 * value, rel_tol=_ROUNDING):
            raise ProgramError(
                f"the metric {name!r} grows with the number of samples, as a sum does: it is {value:.6g} for "
                f"{len(few)} items of test_data() and {double:.6g} for the same items twice. It must return the mean "
                "over the samples that it is given, as (outputs.argmax(1) == targets).float().mean() does."
            )


def _refuse_states(program: Program, outputs: Any, targets: Any) -> None:
    """Refuse a metric that gives another value for the same samples once it was called for others."""
    for name, metric in program.metrics.items():
        first = _value(metric, outputs, targets)
        for _ in range(_OTHERS):
            with contextlib.suppress(Exception):  # it may not understand outputs that are drawn
                metric(map_tensors(_drawn, outputs), targets)
        again = _value(metric, outputs, targets)
        if first == first and not isclose(first, again, rel_tol=_ROUNDING):
            raise ProgramError(
                f"the metric {name!r} keeps something from one call to the next: it was {first:.6g} for some items of "
                f"test_data(), and {again:.6g} for the same after it was called for others. Each worker evaluates "
                "other batches, so what it adds up is not whole. It must return the mean over the samples that it is "
                "given, and keep nothing; nfold takes the mean over batches."
            )


def _drawn(tensor: torch.Tensor) -> torch.Tensor:
    return torch.randn_like(tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor


def _value(metric: Callable[[Any, Any], Any], outputs: Any, targets: Any) -> float:
    seed_all(0)
    return float(metric(map_tensors(torch.clone, outputs), map_tensors(torch.clone, targets)))  # it may write in place


def _results(program: Program, model: nn.Module, few: Any, device: torch.device) -> tuple[Any, Any]:
    """Return what metrics are called with for a few samples."""
    kept: list[tuple[Any, Any]] = []

    def keep(outputs: Any, targets: Any) -> float:
        kept.append((outputs, targets))
        return 0.0

    _evaluated(replace(program, metrics={"kept": keep}, chunks=None), model, few, device)
    return kept[0]


def _evaluated(program: Program, model: nn.Module, items: Any, device: torch.device) -> dict[str, Any]:
    try:
        return evaluate(program, model, items, 0, 1, device)
    except ProgramError as error:
        raise _TooFewError from error
