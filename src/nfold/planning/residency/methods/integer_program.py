"""The integer program of whole samples between pairs of nodes, each pair on a link of its own.

    least T    T >= sum over i of x_ij / link_ij  +  epochs (held_j - sum over k of x_jk + sum over i of x_ij) / rate_j
    x_ij whole, sum over j of x_ij <= held_i - pinned_i, and every node within its room

It promises what shared network cards do not deliver: all that a node sends may leave at once. The run is priced as any
other plan's; what the program itself promised stands beside it. HiGHS solves it, through scipy.
"""

from typing import Any, NamedTuple

import numpy as np

from nfold.core.text.units import count, seconds
from nfold.errors import PlanError
from nfold.planning.residency.model.boxes import Array, Boxes, Indices

_STOPPED, _NO_ANSWER = 1, 2


class Solved(NamedTuple):
    """What the program found."""

    holds: Array
    """Whole samples of each node, of shape (n,)."""
    promised_s: float
    gap: float
    """How far it may be from the best answer, as a share of its own; 0 where the solver was done."""


def integer_optimum(boxes: Boxes, weight: float, time_limit_s: float) -> Solved:
    """Return the best that the solver finds in time.

    Args:
        boxes: of n nodes.
        weight: epochs.
        time_limit_s: for the solver.

    Raises:
        PlanError: there is no answer, or none was found in time.
    """
    from scipy.optimize import milp

    pairs = _pairs(boxes, weight)
    if not len(pairs.source):
        computes = boxes.rate > 0  # whoever does not holds nothing, or it would send
        return Solved(boxes.held.copy(), float(weight * (boxes.held[computes] / boxes.rate[computes]).max()), 0.0)
    num_pairs = len(pairs.source)
    found = milp(
        c=np.concatenate((np.zeros(num_pairs), [1.0])),
        constraints=_constraints(boxes, pairs, weight),
        integrality=np.concatenate((np.ones(num_pairs), [0.0])),
        options={"time_limit": time_limit_s},
    )
    if found.x is None:
        raise PlanError(_failure(found, boxes, num_pairs, time_limit_s))
    moved = np.round(found.x[:num_pairs])
    sent, taken = (np.bincount(ends, moved, len(boxes.held)) for ends in (pairs.source, pairs.target))
    gap = float(found.mip_gap) if found.status == _STOPPED else 0.0
    return Solved(boxes.held - sent + taken, float(found.x[-1]), gap)


class _Pairs(NamedTuple):
    """Who may send to whom, in arrays of one length."""

    source: Indices
    target: Indices
    per_s: Array
    """Samples that the pair's link carries in a second."""


def _pairs(boxes: Boxes, weight: float) -> _Pairs:
    """Return the pairs that may be used in a best answer.

    Who is done by a time that no answer beats, since all nodes together need it, never has to send. To pass samples on
    is never faster than to send them straight.
    """
    alone_s = np.divide(boxes.held, boxes.rate, out=np.where(boxes.held > 0, np.inf, 0.0), where=boxes.rate > 0)
    senders = np.flatnonzero((boxes.held > boxes.least) & (alone_s > boxes.total / float(boxes.rate.sum())))
    source, target = (ends.ravel() for ends in np.meshgrid(senders, np.flatnonzero(boxes.rate > 0), indexing="ij"))
    apart = source != target
    source, target = source[apart], target[apart]
    return _Pairs(source, target, np.minimum(boxes.up[source], boxes.down[target]))


def _constraints(boxes: Boxes, pairs: _Pairs, weight: float) -> Any:
    from scipy import sparse
    from scipy.optimize import LinearConstraint

    count_, columns = len(boxes.held), np.arange(len(pairs.source))
    ones = np.ones(len(columns))
    shape = (count_, len(columns) + 1)
    sends = sparse.csr_matrix((ones, (pairs.source, columns)), shape=shape)
    takes = sparse.csr_matrix((ones, (pairs.target, columns)), shape=shape)
    arrives_s = sparse.csr_matrix((1 / pairs.per_s, (pairs.target, columns)), shape=shape)
    computes = boxes.rate > 0
    per_sample_s = sparse.diags(np.divide(weight, boxes.rate, out=np.zeros(count_), where=computes))
    done = sparse.csr_matrix((ones[:1].repeat(count_), (np.arange(count_), np.full(count_, len(columns)))), shape=shape)
    ends = arrives_s + per_sample_s @ (takes - sends) - done
    most = np.where(computes, boxes.most, 0.0)
    return [
        LinearConstraint(ends[computes], -np.inf, -(per_sample_s @ boxes.held)[computes]),
        LinearConstraint(sends, 0.0, boxes.held - boxes.least),
        LinearConstraint(takes - sends, -np.inf, most - boxes.held),
        LinearConstraint(sparse.identity(shape[1], format="csr"), 0.0, np.inf),
    ]


def _failure(found: Any, boxes: Boxes, num_pairs: int, time_limit_s: float) -> str:
    size = f"{count(len(boxes.held), 'node')} and {count(num_pairs, 'whole number')}"
    if found.status == _NO_ANSWER:
        return (
            f"the integer program of {size} has no answer: pinned data, storage and excluded nodes leave no place "
            f"for all {boxes.total:.0f} samples. Pin less, exclude fewer nodes, or give them more storage."
        )
    return (
        f"the integer program of {size} found no plan in {seconds(time_limit_s)}. Give it longer with --time-limit, or "
        "use --method waterfill, which is exact for links that nodes share and takes milliseconds."
    )
