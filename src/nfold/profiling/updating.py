"""Times an update of all weights without ever holding the optimizer's state of all of them.

A node that profiles need not have room for what is then spread over several: state is made, measured and dropped for
one part of the weights after another.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from statistics import median

import torch
from torch import nn

from nfold.capture.optimizers.step_scope import Scope
from nfold.capture.optimizers.stepping import Stepping
from nfold.core.profile import Timing
from nfold.profiling.measure import Meter, Pair, timing
from nfold.profiling.measured_memory import optimizer_bytes
from nfold.program import Program

SHORT_S = 2e-3
"""An update that takes less is found to take twice as long after a pass as after another update: a step's pass leaves
nothing of it in the caches."""
PART_BYTES = 64 << 20
"""Weights to update at once, unless one alone is larger and cannot be updated in slices. Long enough to time, as most
small models are one part."""

Weights = list[tuple[str, nn.Parameter]]


def measure_update(
    program: Program,
    weights: Weights,
    meter: Meter,
    budget_s: float,
    *,
    scope: Scope,
    a_pass: Callable[[], Pair],
    pass_s: float,
) -> tuple[Timing, float, int]:
    """Time clipping and one optimizer step over all weights.

    Returns:
        what they take; what a step over the smallest weight alone takes, as much as any call does; and the bytes of
        the optimizer's state.

    Args:
        program: the user's.
        weights: by their names, with gradients.
        meter: reads the clock.
        budget_s: for all measurements.
        scope: how far the optimizer's update can be cut.
        a_pass: does a forward and backward, and returns the seconds of both.
        pass_s: what it took before. Where it takes longer beside an update, the machine is slower than it was then, and
            the update counts for as much less.
    """

    def time(update: Callable[[], object]) -> Timing:
        found = timing(meter.repeat(lambda: _seconds(meter, update), share_s))
        return time_beside(update) if found.median_s < SHORT_S else found

    def time_beside(update: Callable[[], object]) -> Timing:
        pairs = meter.repeat(lambda: (sum(a_pass()), _seconds(meter, update)), share_s)
        slower = median(beside_s for beside_s, _ in pairs) / pass_s
        return timing([seconds / slower for _, seconds in pairs])

    pieces = list(in_slices(weights, PART_BYTES)) if scope == "element" else weights
    parts = [weights] if scope == "model" else list(parts_of(pieces, PART_BYTES))
    share_s = budget_s / (len(parts) + 1 + (program.clip_norm is not None))
    found, state_bytes = [], 0
    if program.clip_norm is not None:
        limit, clipped = program.clip_norm, [_densely(weight) for _, weight in weights]
        found.append(time(lambda: nn.utils.clip_grad_norm_(clipped, limit)))
    for part in parts:
        optimizer = _stepping(program, part)
        found.append(time(optimizer.step))
        state_bytes += optimizer_bytes(optimizer)
    whole = _added(found)
    if scope == "model":
        return whole, whole.median_s, state_bytes
    smallest = min(weights, key=lambda each: each[1].numel())
    optimizer = _stepping(program, [smallest])  # schedules hold it weakly
    return whole, time_beside(optimizer.step).median_s, state_bytes


def _densely(weight: nn.Parameter) -> nn.Parameter:
    """Return a weight to clip, which torch does not do where the gradient is sparse: then of what that holds."""
    if weight.grad is None or weight.grad.layout is torch.strided:
        return weight
    values = nn.Parameter(weight.grad._values())
    values.grad = values.detach()
    return values


def _stepping(program: Program, weights: Weights) -> torch.optim.Optimizer:
    return Stepping.of(program).build(_copies(weights)).optimizer


def _copies(weights: Weights) -> Weights:
    """Return weights to update in the place of others, which may share their memory until somebody writes to it."""
    copies = [(name, nn.Parameter(weight.detach().clone())) for name, weight in weights]
    for (_, copy), (_, weight) in zip(copies, weights, strict=True):
        copy.grad = weight.grad
    return copies


def in_slices(weights: Weights, part_bytes: int) -> Iterator[tuple[str, nn.Parameter]]:
    """Cut weights of more than `part_bytes` into runs of their elements, over the same memory; gradients with them.

    One without a gradient, or with a sparse one, stays whole.
    """
    for name, weight in weights:
        gradient, count = weight.grad, ceil(weight.nbytes / part_bytes)
        if gradient is None or gradient.is_sparse or count <= 1:
            yield name, weight
            continue
        runs = (each.detach().reshape(-1).tensor_split(count) for each in (weight, gradient))
        for values, gradients in zip(*runs, strict=True):
            piece = nn.Parameter(values)
            piece.grad = gradients
            yield name, piece


def parts_of(weights: Weights, part_bytes: int) -> Iterator[Weights]:
    """Yield weights in their order, in groups of at most `part_bytes`; a larger weight is a group of its own."""
    part: Weights = []
    for weight in weights:
        if part and sum(each.nbytes for _, each in (*part, weight)) > part_bytes:
            yield part
            part = []
        part.append(weight)
    yield part


def _seconds(meter: Meter, action: Callable[[], object]) -> float:
    begin_s = meter.now()
    action()
    return meter.now() - begin_s


def _added(timings: Sequence[Timing]) -> Timing:
    """One thing after another takes the sum, and varies by no more than the sum."""
    return Timing(
        median_s=sum(each.median_s for each in timings),
        spread_s=sum(each.spread_s for each in timings),
        repeats=min(each.repeats for each in timings),
    )
