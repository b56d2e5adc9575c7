"""The pieces in which samples travel beside gradients, and for how long they hold those up."""

import numpy as np

from nfold.planning.residency.model.boxes import Mask
from nfold.planning.residency.model.traffic import Links, Traffic

MOST_PIECE_BYTES, LEAST_PIECE_BYTES = 64 << 10, 1 << 10
_PIECE_S = 0.02
"""A piece takes no longer on its link."""
MOST_ON_WAY = 2
"""Pieces that the transport has at once: one would leave the link idle until a thread is awake."""


def piece_bytes_on(link_bytes_per_s: float | None) -> int:
    """Return how large a piece may be.

    Args:
        link_bytes_per_s: of the node's link; None: nobody knows.
    """
    if link_bytes_per_s is None:
        return MOST_PIECE_BYTES
    return int(min(MOST_PIECE_BYTES, max(LEAST_PIECE_BYTES, _PIECE_S * link_bytes_per_s)))


def held_up_s(traffic: Traffic, links: Links, members: Mask) -> float:
    """Return by how much a step is longer while samples move beside it.

    Each message that others wait for finds as many pieces before it on its link as are on their way.
    """
    count = int(members.sum())
    if count < 2 or traffic.step_bytes == 0:
        return 0.0
    piece_s = max(piece_bytes_on(float(rate)) / float(rate) for rate in np.unique(links.narrow[members]))
    return traffic.num_waits(count) * MOST_ON_WAY * piece_s
