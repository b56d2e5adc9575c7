"""Which rank sums which part of a bucket: its share. In a ring all members, equally; else the servers, by weights.

Who serves is decided in `planning/choosing/strategies.py`, weights by links in `server_shares.py`.
"""

import math
from collections.abc import Mapping

from nfold.core.placement import Reduction, Share


def equal_shares(num_elements: int, ranks: tuple[int, ...]) -> tuple[Share, ...]:
    """Cut a bucket into one share per rank, as equal as possible."""
    size, extra = divmod(num_elements, len(ranks))
    bounds = [index * size + min(index, extra) for index in range(len(ranks) + 1)]
    return tuple(Share(rank=rank, start=bounds[index], stop=bounds[index + 1]) for index, rank in enumerate(ranks))


def cut_shares(
    reduction: Reduction, weights: Mapping[int, float], rounds: int = 1, borders: tuple[int, ...] = ()
) -> tuple[Share, ...]:
    """Cut a bucket into rounds, and each round into one share per rank.

    Args:
        reduction: the bucket.
        weights: of each rank that serves; who has none gets nothing.
        rounds: while one is pushed, the one before is updated and pulled.
        borders: where cuts are allowed, the bucket's two ends among them; empty: anywhere.

    Returns:
        Shares as near to the weights as the borders allow; none is empty, together they are the bucket.
    """
    total = sum(weights.values())
    targets, ranks = [0.0], []
    for number in range(rounds):
        passed = 0.0
        for rank, weight in weights.items():
            passed += weight
            targets.append(reduction.num_elements * (number + passed / total) / rounds)
            ranks.append(rank)
    cuts = [_nearest(target, borders) for target in targets[:-1]] + [reduction.num_elements]
    shares = zip(ranks, cuts[:-1], cuts[1:], strict=True)
    return tuple(Share(rank=rank, start=start, stop=stop) for rank, start, stop in shares if stop > start)


def _nearest(target: float, borders: tuple[int, ...]) -> int:
    return min(borders, key=lambda border: abs(border - target)) if borders else math.floor(target + 0.5)
