"""Moving while training: a link is a second processor, that gets rid of samples while the first one computes.

In an epoch, a sample is trained on where it lies, or where it arrives in time. So an epoch can compute in T seconds if

    the sum of min(rate T, room, held + what its link receives in the epoch) is at least all samples, and
    rate T + what its link sends in the epoch is at least what a node holds.

A link carries samples while nodes compute, and none while gradients travel. All of it grows with T, so the least T is
found by Newton's method on straight pieces. What has moved stays. Each epoch begins from what the last one left, and
links go on moving data towards the balance without links, until a shorter epoch would need no more of it. While they
do, each step's first gradient waits for the samples that have left.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nfold.core.residency import RunCost
from nfold.planning.residency.methods.waterfilling import Level, holdings_at
from nfold.planning.residency.model.boxes import EXACT, Array, Boxes, Mask, least_compute_s
from nfold.planning.residency.model.pieces import held_up_s, idle_share
from nfold.planning.residency.model.problem import Problem


class Idle(NamedTuple):
    """What links have time for in a second of computing: samples, arrays of shape (n,)."""

    sends: Array
    takes: Array


class Overlapped(NamedTuple):
    """A run that moves data while it trains."""

    holds: Array
    """Samples of each node when all has moved, in fractions."""
    cost: RunCost
    works: tuple[Array, ...]
    """Samples that each trains on in the first epoch, the second and so on, up to the last one that is unlike the one
    before; in fractions. Less may have moved than links had time for: what moves ahead is trained on where it lay."""


def overlapped(problem: Problem, members: Mask) -> Overlapped:
    """Return the run of some members, epoch after epoch. O(n) for each epoch in which something moves.

    Args:
        problem: of n nodes.
        members: of shape (n,); together they have room for all samples, and all that pin some are among them.
    """
    boxes, epochs = problem.boxes.computing(members), problem.demand.epochs
    sync_s, idle = problem.sync_s(members), idle_links(problem, members)
    held_s = _steps_of(problem) * held_up_s(problem.demand.traffic, problem.links, members)
    target = holdings_at(boxes, Level(move_s=_for_ever_s(boxes), compute_s=least_compute_s(boxes)))
    computes_s: list[float] = []
    works: list[Array] = []
    while len(computes_s) < epochs:
        compute_s = least_epoch_s(boxes, idle)
        works.append(_moved(boxes, idle, compute_s, target, is_last=True))
        holds = works[-1] if len(works) == epochs else _moved(boxes, idle, compute_s, target, is_last=False)
        stands_still = np.abs(holds - boxes.held).max(initial=0.0) <= EXACT * boxes.total
        boxes = replace(boxes, held=holds)
        computes_s.append(compute_s + _longer_s(problem, works[-1]) + (0.0 if stands_still else held_s))
        if stands_still:
            computes_s += computes_s[-1:] * (epochs - len(computes_s))
    return Overlapped(boxes.held, _cost(computes_s, sync_s), tuple(works))


def _steps_of(problem: Problem) -> float:
    """Return the steps of an epoch."""
    return float(np.ceil(problem.boxes.total / problem.demand.batch_size))


def _longer_s(problem: Problem, work: Array) -> float:
    """Return by how much an epoch is longer as samples that have come are slower to read."""
    return float((problem.come_s * np.maximum(work - problem.boxes.held, 0.0)).max(initial=0.0))


def idle_links(problem: Problem, members: Mask) -> Idle:
    """Return what the links can move beside gradients."""
    share = idle_share(problem.demand.traffic, members)
    return Idle(share * problem.boxes.up, share * problem.boxes.down)


def least_epoch_s(boxes: Boxes, idle: Idle) -> float:
    """Return the least seconds in which an epoch can compute while data move."""
    stuck = boxes.held / (boxes.rate + idle.sends)
    compute_s = max(least_compute_s(boxes), float(stuck.max(initial=0.0)))
    for _ in range(2 * len(boxes.held) + 2):
        ceiling, reach = boxes.ceiling(compute_s), boxes.held + idle.takes * compute_s
        missing = boxes.total - float(np.minimum(ceiling, reach).sum())
        slopes = np.where(reach < ceiling, idle.takes, np.where(boxes.rate * compute_s < boxes.most, boxes.rate, 0.0))
        if missing <= EXACT * boxes.total:
            break
        compute_s += missing / float(slopes.sum())
    return compute_s


def _moved(boxes: Boxes, idle: Idle, compute_s: float, target: Array, *, is_last: bool) -> Array:
    """Return what nodes hold after an epoch: what it needed has moved and, before another one, as much more as can."""
    ceiling = boxes.ceiling(compute_s)
    needed = np.maximum(boxes.held - ceiling, 0.0)
    sends = np.minimum(idle.sends * compute_s, np.maximum(boxes.held - target, 0.0))
    takes = np.minimum(idle.takes * compute_s, np.maximum(ceiling - boxes.held, 0.0))
    wanted = np.minimum(takes, np.maximum(target - boxes.held, 0.0))
    amount = float(needed.sum()) if is_last else max(float(needed.sum()), min(float(sends.sum()), float(wanted.sum())))
    sent = _between(needed, np.maximum(sends, needed), amount)
    taken = _between(np.zeros_like(wanted), wanted, min(amount, float(wanted.sum())))
    return boxes.held - sent + taken + _between(np.zeros_like(takes), takes - taken, amount - float(taken.sum()))


def _between(low: Array, high: Array, total: float) -> Array:
    """Return values of a sum, each as far from its low to its high as the others."""
    room = float((high - low).sum())
    share = (total - float(low.sum())) / room if room > 0 else 0.0
    return low + (high - low) * min(max(share, 0.0), 1.0)


def _for_ever_s(boxes: Boxes) -> float:
    """A time in which the slowest link moves everything."""
    return boxes.total / float(np.minimum(boxes.up, boxes.down).min())


def _cost(computes_s: list[float], sync_s: float) -> RunCost:
    return RunCost(
        move_s=0.0,
        first_epoch_s=computes_s[0] + sync_s,
        epoch_s=computes_s[-1] + sync_s,
        compute_s=computes_s[-1],
        sync_s=sync_s,
        run_s=sum(computes_s) + len(computes_s) * sync_s,
    )
