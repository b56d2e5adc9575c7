"""What a run costs if every node holds so many samples: one judge of all methods, who knows that nodes share links."""

import numpy as np

from nfold.core.residency import RunCost
from nfold.planning.residency.model.boxes import Array, Mask
from nfold.planning.residency.model.problem import Problem


def members_of(problem: Problem, holds: Array) -> Mask:
    """Return who computes: whoever is not excluded and holds something."""
    return (holds > 0) & problem.can_compute


def moving_s(problem: Problem, holds: Array) -> float:
    """Return the seconds in which all samples move at once, each link full until its own are through."""
    change = holds - problem.boxes.held
    return float(np.maximum(-change / problem.boxes.up, change / problem.boxes.down).max(initial=0.0))


def priced(problem: Problem, holds: Array) -> RunCost | None:
    """Return the cost of moving first and training then; None where an excluded node holds something.

    Args:
        problem: of n nodes.
        holds: samples of each after all has moved, of shape (n,).
    """
    members = members_of(problem, holds)
    if holds[~problem.can_compute].any():
        return None
    compute_s = float(computes_s(problem, holds)[members].max())
    return cost_of(problem, moving_s(problem, holds), compute_s, problem.sync_s(members))


def computes_s(problem: Problem, work: Array) -> Array:
    """Return the seconds of an epoch in which each node computes; those that compute nothing take none.

    Args:
        problem: of n nodes.
        work: samples that each trains on, of shape (n,); those beyond what it held have come.
    """
    boxes = problem.boxes
    trains_s = np.divide(work, boxes.rate, out=np.zeros(len(work)), where=boxes.rate > 0)
    return np.asarray(trains_s + problem.come_s * np.maximum(work - boxes.held, 0.0))


def cost_of(problem: Problem, move_s: float, compute_s: float, sync_s: float) -> RunCost:
    """Return the cost of epochs that are all alike."""
    epoch_s = compute_s + sync_s
    return RunCost(
        move_s=move_s,
        first_epoch_s=epoch_s,
        epoch_s=epoch_s,
        compute_s=compute_s,
        sync_s=sync_s,
        run_s=move_s + problem.demand.epochs * epoch_s,
    )
