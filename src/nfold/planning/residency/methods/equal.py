"""Equal balance: as many samples on each node that computes, whatever its speed and link."""

import numpy as np

from nfold.planning.residency.model.boxes import Array, Boxes

_HALVINGS = 64


def equal_holdings(boxes: Boxes) -> Array:
    """Return the same number for each of n nodes, in fractions, as far as pins and room allow. O(n).

    Args:
        boxes: of the nodes. Together they must have room for all samples.
    """
    most = np.where(boxes.rate > 0, boxes.most, 0.0)
    low, high = 0.0, boxes.total
    for _ in range(_HALVINGS):
        level = (low + high) / 2
        low, high = (level, high) if np.clip(level, boxes.least, most).sum() < boxes.total else (low, level)
    return np.asarray(np.clip(high, boxes.least, most))
