"""Fractions of samples -> whole ones, none lost, and as few moved as before."""

import numpy as np

from nfold.errors import InternalError
from nfold.planning.residency.model.boxes import Array, Boxes

_WHOLE = 1e-6


def whole(holds: Array, boxes: Boxes) -> Array:
    """Return whole samples of the same sum, each at most one away from its fraction.

    Who is done sooner with one more sample takes it.

    Args:
        holds: what each of n nodes holds, of shape (n,).
        boxes: of the nodes.
    """
    nearest = np.round(holds)
    exact = np.where(np.abs(holds - nearest) < _WHOLE, nearest, holds)
    found = np.maximum(np.floor(exact), boxes.least)
    left = round(boxes.total - float(found.sum()))
    takes = np.flatnonzero((boxes.rate > 0) & (found + 1 <= boxes.most))
    if left < 0 or left > len(takes):
        raise InternalError(f"{left} of {boxes.total:.0f} samples are left over when they are made whole")
    one_more_s = (found[takes] + 1) / boxes.rate[takes]
    is_whole = exact[takes] == found[takes]
    found[takes[np.lexsort((one_more_s, is_whole))[:left]]] += 1
    return found
