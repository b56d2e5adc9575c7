"""What each node may hold, compute, send and receive, as arrays of numbers. The unit of data is one sample."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nfold.errors import InternalError

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]
EXACT = 1e-13
"""Relative: what is met so closely is met."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Boxes:
    """Limits of n nodes: arrays of shape (n,)."""

    held: Array
    """Samples that live there now."""
    least: Array
    """Of them, those that may not leave."""
    most: Array
    """Samples for which there is room; infinite where storage is not limited."""
    rate: Array
    """Samples that it trains on in a second; 0 of a node that shall not compute, and so shall hold nothing."""
    up: Array
    """Samples that it can send in a second."""
    down: Array
    """Samples that it can receive in a second."""

    @property
    def total(self) -> float:
        """Return how many samples there are in all."""
        return float(self.held.sum())

    def computing(self, members: Mask) -> Self:
        """Return the same nodes, of which only members compute."""
        return replace(self, rate=np.where(members, self.rate, 0.0))

    def unpinned(self) -> Self:
        """Return the same nodes, where everything may leave."""
        return replace(self, least=np.zeros(len(self.least)))

    def ceiling(self, compute_s: float) -> Array:
        """Return the most samples that each may hold if an epoch computes for so long."""
        return np.minimum(self.rate * compute_s, self.most)


def least_compute_s(boxes: Boxes) -> float:
    """Return the least seconds of computing, however long data may move."""
    pinned = boxes.least > 0
    compute_s = float((boxes.least[pinned] / boxes.rate[pinned]).max(initial=0.0))
    compute_s = max(compute_s, boxes.total / float(boxes.rate.sum()))
    for _ in range(len(boxes.rate) + 1):
        missing = boxes.total - float(boxes.ceiling(compute_s).sum())
        growing = float(boxes.rate[boxes.rate * compute_s < boxes.most].sum())
        if missing <= EXACT * boxes.total:
            return compute_s
        if growing == 0:
            raise InternalError("nodes have no room for all samples, which is checked before")
        compute_s += missing / growing
    return compute_s
