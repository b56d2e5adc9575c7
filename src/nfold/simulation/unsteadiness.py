"""How much slower ranks compute for a while in a step: no node computes as steadily as a mean suggests."""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist

from nfold.core.cluster import Node
from nfold.core.schedule import Schedule
from nfold.core.tasks import Forward

_BLOM = 0.375
_FASTEST = 0.2
"""No pass is faster than this part of the mean: a normal distribution would allow any."""


def slowness(schedule: Schedule, nodes: Sequence[Node]) -> dict[int, float]:
    """Return by what each computing rank's forwards and backwards are multiplied; 1 on average.

    What varies from pass to pass evens out over the chunks of a step.

    Args:
        schedule: of a step.
        nodes: node of each rank.
    """
    passes = {
        rank.rank: len({task.chunk for task in rank.tasks if isinstance(task, Forward)}) for rank in schedule.ranks
    }
    computing = sorted(rank for rank, count in passes.items() if count)
    normal, count = NormalDist(), len(computing)
    return {
        rank: max(
            _FASTEST,
            1.0
            + nodes[rank].unsteadiness
            / sqrt(passes[rank])
            * normal.inv_cdf((place - _BLOM) / (count + 1.0 - 2 * _BLOM)),
        )
        for place, rank in enumerate(computing, start=1)
    }
