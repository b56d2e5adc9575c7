"""The pieces in which samples travel beside gradients: what they have of a link, and for how long they hold it up."""

import numpy as np

from nfold.planning.residency.model.boxes import Mask
from nfold.planning.residency.model.traffic import Links, Traffic

MOST_PIECE_BYTES, LEAST_PIECE_BYTES = 64 << 10, 1 << 10
_PIECE_S = 0.005
"""A piece takes no longer on its link."""
MOST_ON_WAY = 2
"""Pieces that the transport has at once: one would leave the link idle until a thread is awake."""
LINK_SHARE = 0.9
"""Of a link, at which pieces leave while no gradients travel: headers travel, too."""
_IDLE_USED = 0.8
"""Of what a link carries while its node computes: threads wake late, and when computing begins, what the network has
taken of gradients is still on its way."""


def piece_bytes_on(link_bytes_per_s: float | None) -> int:
    """Return how large a piece may be.

    Args:
        link_bytes_per_s: of the node's link; None: nobody knows.
    """
    if link_bytes_per_s is None:
        return MOST_PIECE_BYTES
    return int(min(MOST_PIECE_BYTES, max(LEAST_PIECE_BYTES, _PIECE_S * link_bytes_per_s)))


def idle_share(traffic: Traffic, members: Mask) -> float:
    """Return the share of what a link could carry while nodes compute that samples have of it.

    While gradients travel, samples have nothing.
    """
    return 1.0 if int(members.sum()) < 2 or traffic.step_bytes == 0 else _IDLE_USED


def held_up_s(traffic: Traffic, links: Links, members: Mask) -> float:
    """Return by how much a step is longer while samples move beside it.

    The first gradient finds as many pieces before it on its link as are on their way, and from then on none leave.
    """
    count = int(members.sum())
    if count < 2 or traffic.step_bytes == 0:
        return 0.0
    piece_s = max(piece_bytes_on(float(rate)) / float(rate) for rate in np.unique(links.narrow[members]))
    return MOST_ON_WAY * piece_s
