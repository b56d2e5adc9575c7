"""Where the data of a pipeline should live: all of it at the first stage, since all samples go in there.

Every member computes a part of the model in proportion to its speed, so an epoch computes all samples over the sum of
speeds. What stages pass on waits for the slowest link among them, so the members are all nodes with a link of at least
some speed, for the speed that is best; or one node alone. Samples come in while the first epoch computes.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nfold.core.residency import Moving, RunCost
from nfold.errors import ClusterError
from nfold.planning.residency.methods.choices import Choice
from nfold.planning.residency.model.boxes import Array, Mask
from nfold.planning.residency.model.problem import Problem


def pipeline_optimum(problem: Problem) -> Choice:
    """Return the best first stage and members. O(n squared).

    Raises:
        ClusterError: no node could hold all samples.
    """
    arrives_s = _arrives_s(problem)
    if not np.isfinite(arrives_s).any():
        raise ClusterError(
            f"a pipeline takes all {problem.boxes.total:.0f} samples in at one node, and none can hold them: each "
            "lacks storage, is excluded, or would need what another one pins. Use a ring, or pin less."
        )
    costs = ((_cost(problem, arrives_s, members), members) for members in _sets(problem, arrives_s))
    cost, members = min(costs, key=lambda pair: pair[0].run_s)
    first = int(np.where(members, arrives_s, np.inf).argmin())
    holds = np.zeros(len(members))
    holds[first] = problem.boxes.total
    moving: Moving = "while training" if arrives_s[first] else "nothing"
    rate = np.where(members, problem.boxes.rate, 0.0)
    work = problem.boxes.total * rate / rate.sum()
    return Choice(method="pipeline", moving=moving, holds=holds, work=work, members=members, cost=cost)


def fetched(problem: Problem, chosen: Choice) -> Choice | None:
    """Return the same pipeline whose first stage fetches in each epoch what lives elsewhere.

    None where some of that is pinned, or its node is excluded.
    """
    elsewhere = (chosen.holds == 0) & (problem.boxes.held > 0)
    if (problem.boxes.least[elsewhere] > 0).any() or not problem.can_compute[elsewhere].all():
        return None
    first_s, epochs = chosen.cost.first_epoch_s, problem.demand.epochs
    stays = replace(chosen.cost, epoch_s=first_s, run_s=epochs * first_s)
    return replace(chosen, method="nothing", moving="nothing", holds=problem.boxes.held, cost=stays)


def _arrives_s(problem: Problem) -> Array:
    """Return when all samples are at each node, were it the first stage; infinite where they cannot be."""
    boxes = problem.boxes
    leaves_s = boxes.held / boxes.up
    slowest = int(leaves_s.argmax())
    others_s = np.full(len(leaves_s), float(leaves_s[slowest]))
    others_s[slowest] = float(np.delete(leaves_s, slowest).max(initial=0.0))
    pinned_elsewhere = boxes.least.sum() - boxes.least > 0
    can = problem.can_compute & (boxes.most >= boxes.total) & ~pinned_elsewhere
    return np.where(can, np.maximum(others_s, (boxes.total - boxes.held) / boxes.down), np.inf)


def _sets(problem: Problem, arrives_s: Array) -> Iterator[Mask]:
    """Yield the sets of members that have a first stage among them."""
    narrow, nodes = problem.links.narrow, np.arange(len(arrives_s))
    linked = (problem.can_compute & (narrow >= speed) for speed in np.unique(narrow[problem.can_compute]))
    alone = (nodes == node for node in np.flatnonzero(problem.can_compute))
    yield from (members for sets in (linked, alone) for members in sets if np.isfinite(arrives_s[members]).any())


def _cost(problem: Problem, arrives_s: Array, members: Mask) -> RunCost:
    """Samples arrive while members compute, and not while activations travel."""
    compute_s = problem.boxes.total / float(problem.boxes.rate[members].sum())
    sync_s, epochs = problem.sync_s(members), problem.demand.epochs
    first_s = max(compute_s, float(arrives_s[members].min())) + sync_s
    return RunCost(
        move_s=0.0,
        first_epoch_s=first_s,
        epoch_s=compute_s + sync_s,
        compute_s=compute_s,
        sync_s=sync_s,
        run_s=first_s + (epochs - 1) * (compute_s + sync_s),
    )
