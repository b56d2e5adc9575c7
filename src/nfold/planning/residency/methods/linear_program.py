"""The optimum of water-filling by a linear program: slower, and independent of it, so that each checks the other."""

import numpy as np

from nfold.errors import InternalError
from nfold.planning.residency.methods.waterfilling import Level
from nfold.planning.residency.model.boxes import Array, Boxes


def linear_optimum(boxes: Boxes, weight: float) -> tuple[Level, Array]:
    """Return the level of least move_s + weight * compute_s, and what each node holds, in fractions of samples.

    Variables are what each node sends and receives, in shares of all samples, and the two times.

    Args:
        boxes: of n nodes.
        weight: epochs.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    count, total, unit_s = len(boxes.held), boxes.total, boxes.total / float(boxes.rate.sum())
    held, one, none = boxes.held / total, sparse.identity(count), sparse.csr_matrix((count, count))
    nothing = np.zeros((count, 1))

    def column(per_s: Array) -> Array:
        return -(per_s * unit_s / total)[:, None]

    rows = sparse.vstack(
        [
            sparse.hstack([-one, one, nothing, column(boxes.rate)]),  # it computes what it holds
            sparse.hstack([one, none, column(boxes.up), nothing]),  # its link carries what it sends
            sparse.hstack([none, one, column(boxes.down), nothing]),  # and what it receives
            sparse.hstack([sparse.csr_matrix(np.concatenate((np.ones(count), -np.ones(count)))), np.zeros((1, 2))]),
        ],
        format="csc",
    )
    found = linprog(
        c=np.concatenate((np.zeros(2 * count), [1.0, weight])),
        A_ub=rows[:-1],
        b_ub=np.concatenate((-held, np.zeros(2 * count))),
        A_eq=rows[-1:],
        b_eq=[0.0],
        bounds=[*_ranges(boxes.held - boxes.least, total), *_ranges(_room(boxes), total), (0, None), (0, None)],
        method="highs",
    )
    if not found.success:
        raise InternalError(f"the linear program of {count} nodes has no answer: {found.message}")
    sends, receives = found.x[:count] * total, found.x[count : 2 * count] * total
    level = Level(move_s=float(found.x[-2]) * unit_s, compute_s=float(found.x[-1]) * unit_s)
    return level, boxes.held - sends + receives


def _room(boxes: Boxes) -> Array:
    """A node that may hold nothing receives nothing."""
    return np.where(boxes.rate > 0, boxes.most - boxes.held, 0.0)


def _ranges(upper: Array, total: float) -> list[tuple[float, float | None]]:
    return [(0.0, None if not np.isfinite(value) else value / total) for value in upper]
