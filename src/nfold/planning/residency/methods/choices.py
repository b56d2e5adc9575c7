"""The ways to decide, each from a problem to a choice that is priced alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nfold.core.residency import Moving, RunCost
from nfold.planning.residency.methods.equal import equal_holdings
from nfold.planning.residency.methods.greedy import greedy_holdings
from nfold.planning.residency.methods.integer_program import integer_optimum
from nfold.planning.residency.methods.joint import joint_optimum
from nfold.planning.residency.methods.linear_program import linear_optimum
from nfold.planning.residency.methods.overlap import overlapped
from nfold.planning.residency.methods.waterfilling import holdings_at, water_level
from nfold.planning.residency.model.boxes import Array, Mask
from nfold.planning.residency.model.pricing import members_of, priced
from nfold.planning.residency.model.problem import Problem
from nfold.planning.residency.model.whole_samples import whole

Name = Literal["ilp", "equal", "greedy", "lp", "waterfill", "overlap", "joint"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What every node shall hold. Arrays have the shape (n,)."""

    method: Literal["nothing", "pipeline"] | Name
    moving: Moving
    holds: Array
    """Whole samples."""
    members: Mask
    cost: RunCost
    work: Array
    """Samples that each trains on in an epoch; in a pipeline, its part of all computing in samples."""
    promised_s: float | None = None
    gap: float | None = None
    works: tuple[Array, ...] = ()
    """While data move: whole samples that each trains on in the first epoch, the second and so on; `work` from then
    on."""


def nothing(problem: Problem) -> Choice | None:
    """Let every sample stay; None where an excluded node holds some."""
    held = problem.boxes.held
    cost = priced(problem, held)
    if cost is None:
        return None
    members = members_of(problem, held)
    return Choice(method="nothing", moving="nothing", holds=held, work=held, members=members, cost=cost)


def waterfill(problem: Problem) -> Choice:
    """Move first, train then, gradients left out of the decision: the exact optimum."""
    level = water_level(problem.boxes, problem.demand.epochs)
    return moved_before("waterfill", problem, holdings_at(problem.boxes, level, _near(problem)))


def linear(problem: Problem) -> Choice:
    """Decide the same by a linear program."""
    return moved_before("lp", problem, linear_optimum(problem.boxes, problem.demand.epochs)[1])


def equal(problem: Problem) -> Choice:
    """Give each node as many."""
    return moved_before("equal", problem, equal_holdings(problem.boxes))


def greedy(problem: Problem) -> Choice:
    """Take from the last, give to the first."""
    return moved_before("greedy", problem, greedy_holdings(problem.boxes, problem.demand.epochs))


def integer(problem: Problem, time_limit_s: float) -> Choice:
    """Solve the integer program of independent links.

    Raises:
        PlanError: it has no answer, or none in time.
    """
    found = integer_optimum(problem.boxes, problem.demand.epochs, time_limit_s)
    promised_s = found.promised_s + problem.demand.epochs * problem.sync_s(members_of(problem, found.holds))
    return moved_before("ilp", problem, found.holds, promised_s=promised_s, gap=found.gap)


def overlap(problem: Problem) -> Choice:
    """Move while all nodes train."""
    return moved_beside("overlap", problem, problem.can_compute)


def joint(problem: Problem) -> Choice:
    """Decide who computes, too; then move before or while, whichever is done sooner.

    Who gives all away and computes nothing is gone before training begins, so nothing moves beside it then.
    """
    found = joint_optimum(problem)
    holds = holdings_at(problem.boxes.computing(found.members), found.level, _near(problem))
    before = moved_before("joint", problem, holds)
    if problem.boxes.held[~found.members].any():
        return before
    beside = moved_beside("joint", problem, found.members)
    return min(before, beside, key=lambda choice: choice.cost.run_s)


def moved_before(
    method: Name, problem: Problem, holds: Array, promised_s: float | None = None, gap: float | None = None
) -> Choice:
    """Return the choice of moving first and training then.

    Args:
        method: that decided.
        problem: of n nodes.
        holds: what each shall hold, in fractions of samples.
        promised_s: see Choice.
        gap: see Choice.
    """
    holds = whole(holds, problem.boxes.computing(members_of(problem, holds)))
    cost = priced(problem, holds)
    assert cost is not None, "excluded nodes hold nothing"
    moving: Moving = "before training" if (holds != problem.boxes.held).any() else "nothing"
    members = members_of(problem, holds)
    return Choice(
        method=method,
        moving=moving,
        holds=holds,
        work=holds,
        members=members,
        cost=cost,
        promised_s=promised_s,
        gap=gap,
    )


def moved_beside(method: Name, problem: Problem, allowed: Mask) -> Choice:
    """Return the choice of moving while members train.

    Args:
        method: that decided.
        problem: of n nodes.
        allowed: who may compute, of shape (n,).
    """
    members = allowed & ((problem.boxes.held > 0) | (overlapped(problem, allowed).holds > 0))
    run, boxes = overlapped(problem, members), problem.boxes.computing(members)
    holds = whole(run.holds, boxes)
    if not (holds != boxes.held).any():
        return Choice(method=method, moving="nothing", holds=holds, work=holds, members=members, cost=run.cost)
    works = tuple(whole(work, boxes) for work in run.works)
    return Choice(
        method=method, moving="while training", holds=holds, work=holds, works=works, members=members, cost=run.cost
    )


UNLIMITED: dict[Name, Callable[[Problem], Choice]] = {
    "waterfill": waterfill,
    "lp": linear,
    "equal": equal,
    "greedy": greedy,
    "overlap": overlap,
    "joint": joint,
}
"""All that need no limit of time."""


def _near(problem: Problem) -> Array:
    """Prefer receivers at a site that has too much: 1 there, 0 elsewhere."""
    boxes = problem.boxes
    average_s = boxes.total / float(boxes.rate.sum())
    full = {
        site for site, much in zip(problem.sites, boxes.held > boxes.rate * average_s, strict=True) if much and site
    }
    return np.array([float(site in full) for site in problem.sites])
