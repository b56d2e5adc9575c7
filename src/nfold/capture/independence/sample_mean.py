"""Compares a loss with the mean of its values for parts of the samples, where the outputs are given.

Only the comparison and its sentence are here. Whether a program's loss counts as a mean is decided before training in
`capture/program_facts.py`, and more than one chunk is refused in `planning/choosing/wishes.py` if it is none. While it
trains, `runtime/guards/checked_loss.py` looks again and ends the run.

The answer does not depend on the type in which a loss computes, but the rounding of a coarse one hides a difference of
a percent. So the loss is asked in single precision and without autocast, if it can compute so.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch

from nfold.capture.batches.tree import map_tensors
from nfold.capture.computing.precision import PrecisionWatch, finer
from nfold.capture.computing.random import LOCK, RandomState
from nfold.capture.computing.steady_draws import SteadyDraws
from nfold.capture.computing.step_outcome import close
from nfold.capture.program.autocast import plain_loss
from nfold.capture.program.program_graph import Loss

NO_MEAN = "the loss is not a mean over samples"

Take = Callable[[list[int]], tuple[Any, Any]]
"""Copies outputs and targets of some samples."""


def why_unlike_parts(loss: Loss, take: Take, parts: list[list[int]]) -> str:
    """Say how the loss of samples differs from the mean over parts of them; empty if only by rounding.

    Args:
        loss: the user's, under autocast or not.
        take: gives what it is called with.
        parts: samples of each.

    Raises:
        Exception: what the loss or `take` raised, without gradients as it is called here.
    """
    own = plain_loss(loss)
    try:
        return _difference(own, lambda samples: map_tensors(finer, take(samples)), parts)
    except Exception:
        # It may hold tensors of the coarse type, which go with no other outside autocast.
        return _difference(loss, take, parts)


def not_a_mean(whole: torch.Tensor, mean: torch.Tensor, size: int) -> str:
    """Return the sentence that a loss is no mean over samples, with both numbers."""
    texts = next(
        (one, other)
        for digits in (6, 9, 17)
        if (one := f"{whole.item():.{digits}g}") != (other := f"{mean.item():.{digits}g}") or digits == 17
    )
    return (
        f"{NO_MEAN}: tried on {size} samples it is {texts[0]}, but the mean over parts of them is {texts[1]} "
        "(a sum, a mean over words of samples of unlike lengths, class weights, ignored targets, contrasts between "
        "samples, a mean or deviation of the batch that others are divided by, a decision on a value of the whole "
        "batch, outputs that follow how far collate pads samples, or an output that is one number for the whole batch "
        "do that)"
    )


def _difference(loss: Loss, take: Take, parts: list[list[int]]) -> str:
    watch = PrecisionWatch()

    def value(samples: list[int]) -> torch.Tensor:
        outputs, targets = take(samples)
        with watch:  # not while they are taken: the type that they come in is not what the loss computes in
            return loss(outputs, targets)

    # Ranks may be threads: what this draws must not be missing elsewhere.
    with LOCK, torch.no_grad(), SteadyDraws():
        before = RandomState()
        try:
            whole = value(list(itertools.chain(*parts)))
            # A sample beside itself: losses that squeeze stumble over one alone.
            losses = [value(part * 2 if len(part) == 1 else part) for part in parts]
        finally:
            drew = before.others_moved()
            before.restore()
    count = sum(map(len, parts))
    mean = sum((each * (len(part) / count) for part, each in zip(parts, losses, strict=True)), whole * 0)
    # Losses of both signs are rounded by what they are, not by what remains of them.
    scale = max((abs(float(each)) for each in losses if each.isfinite()), default=0.0)
    agrees = drew or not whole.isfinite() or close(whole, mean, watch.coarsest, floor=scale)
    return "" if agrees else not_a_mean(whole, mean, count)
