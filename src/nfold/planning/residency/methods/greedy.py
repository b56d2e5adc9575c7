"""Greedy: again and again, the node that is done last gives a little to the node that is then done first."""

import numpy as np

from nfold.planning.residency.model.boxes import Array, Boxes

GRAIN = 0.02
"""Of the average holding: what moves at a time."""


def greedy_holdings(boxes: Boxes, weight: float) -> Array:
    """Return what each of n nodes holds when no further piece helps. O(n) for each piece, 50 n pieces at most.

    A node is done when its link is through and its epochs are computed.

    Args:
        boxes: of the nodes.
        weight: epochs.
    """
    holds = _drained(boxes)
    piece = max(1.0, np.floor(GRAIN * boxes.total / len(holds)))
    while True:
        done_s = _done_s(boxes, holds, weight)
        giver = int(np.where(holds > boxes.least, done_s, -np.inf).argmax())
        moved = min(piece, holds[giver] - boxes.least[giver])
        then_s = np.where(holds + moved <= boxes.most, _done_s(boxes, holds + moved, weight), np.inf)
        then_s[giver] = np.inf
        taker = int(then_s.argmin())
        after_s = _done_s(boxes, holds - moved, weight)[giver]
        if max(then_s[taker], after_s) >= done_s[giver] or moved <= 0:
            return holds
        holds[giver] -= moved
        holds[taker] += moved


def _done_s(boxes: Boxes, holds: Array, weight: float) -> Array:
    """Return when each node is done if it holds so much."""
    change = holds - boxes.held
    moves_s = np.maximum(-change / boxes.up, change / boxes.down)
    computes_s = np.divide(holds, boxes.rate, out=np.where(holds > 0, np.inf, 0.0), where=boxes.rate > 0)
    return np.asarray(np.maximum(moves_s, 0.0) + weight * computes_s)


def _drained(boxes: Boxes) -> Array:
    """Return what nodes hold when those that shall not compute have given all away, each where it is done first."""
    holds = boxes.held.copy()
    for node in np.flatnonzero((boxes.rate == 0) & (holds > 0)):
        left, holds[node] = holds[node], 0.0
        while left > 0:
            room = np.where(boxes.rate > 0, boxes.most - holds, 0.0)
            taker = int(np.where(room > 0, (holds + left) / np.maximum(boxes.rate, 1e-300), np.inf).argmin())
            taken = min(left, room[taker])
            holds[taker] += taken
            left -= taken
    return holds
