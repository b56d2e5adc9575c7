"""The order in which samples are visited where they live: a function of seed, epoch and residency.

Every node visits its own samples in an order of its own, and nodes take turns so that each batch, and each beginning of
an epoch, has of every node's samples about its share.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nfold.planning.residency.model.boxes import Indices


class ResidentOrder(NamedTuple):
    """The samples of an epoch, one after another: arrays of one length."""

    node: Indices
    """Where each lives, by the node's index."""
    place: Indices
    """Which of its node's samples it is."""


def resident_order(holds: Sequence[int], seed: int, epoch: int) -> ResidentOrder:
    """Return the order of an epoch, in which every sample comes once. O(n log n) for n samples.

    The keys by which samples are shuffled are the raw numbers of a counter-based generator (Philox), which are the same
    in every version of numpy.

    Args:
        holds: samples of each node.
        seed: of the program.
        epoch: counts from 0.
    """
    turns = [(np.arange(count) + 0.5) / count if count else np.zeros(0) for count in holds]
    node = np.repeat(np.arange(len(holds)), holds)
    place = np.concatenate([_shuffled(count, seed, epoch, index) for index, count in enumerate(holds)])
    turn = np.argsort(np.concatenate(turns), kind="stable")
    return ResidentOrder(node[turn], place[turn])


def _shuffled(count: int, seed: int, epoch: int, node: int) -> Indices:
    generator = np.random.Philox(key=np.array([seed % 2**64, epoch << 32 | node], dtype=np.uint64))
    keys = generator.random_raw(count)
    return np.argsort(keys, kind="stable")
