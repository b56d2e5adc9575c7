"""Samples are read a step ahead: what of the reading a rank still waits for, and what it takes from computing.

Each rank has a thread, or loaders of its own, that read the samples of its next step while it computes this one
(`runtime/data/chunk_loader.py`):

    reader      | next step's samples ........... |              read_s > compute_s: the rest is waited for
    computing   | F  B  F  B  F  B |  waits for it |

Each who reads keeps a core busy, but while it waits for a disk or a network. Where the node has no core to spare, it
shares those that compute, which computing feels and no rank waits for: reading then costs what it always did, and
counts as computing. Updates and messages hide reading too; they are left out, so that a little more is promised to be
waited for than will be.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from nfold.core.cluster import Cluster, Node
from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement
from nfold.core.profile import Profile
from nfold.planning.costs.operator_runs import Array
from nfold.planning.inputs.facts import Facts
from nfold.planning.scheduling.segments import INPUTS


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreContention:
    """How reading and computing of one rank slow each other down on its node."""

    pace: float
    """Seconds of reading, as profiled, that are done in a second of computing, as profiled: all jobs of a node slow
    each other alike, but what several threads were profiled at has paid for their crowding already."""
    cost: float
    """Seconds, as profiled, by which computing is longer for a second of reading beside it."""


NOTHING_AHEAD = CoreContention(pace=0.0, cost=0.0)
"""Where the seconds of reading are those that a run waited."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingCosts:
    """The seconds that reading the next step's samples adds to a rank's step."""

    waited: float
    """Share of the reading that computing does not hide."""
    stretch: float
    """Times forward and backward take as long as without it."""


def chunks_read(graph: ModelGraph, placement: Placement, rank: int) -> frozenset[int]:
    """Return the chunks whose samples a rank reads. O(operators of the first and last layer x chunks)."""
    inputs = [tensor for tensor in graph.tensors if tensor.name in INPUTS]
    users = {placement.owners[user] for tensor in inputs for user in tensor.consumers}
    return frozenset(chunk for owners in users for chunk, owner in enumerate(owners) if owner == rank)


def least_share(cluster: Cluster, nodes: Sequence[str]) -> float:
    """Return the cores of the rank that has the fewest, of ranks on these nodes."""
    return min(cluster.node(name).cores / nodes.count(name) for name in set(nodes))


def within_cores(profile: Profile, cores: float) -> Profile:
    """Return a profile whose loaders are no more than a rank's cores can keep busy."""
    busy = 1.0 - profile.load_wait
    most = max(1, int(cores / busy)) if busy > 0 else profile.loaders
    return replace(profile, loaders=min(profile.loaders, most))


def steps_ahead(loaders: int, num_chunks: int) -> int:
    """Return how many steps ahead of its use a rank's data are read: more of them so that no loader is without a chunk.

    Args:
        loaders: processes that read for the rank; 0: a thread of its own does.
        num_chunks: that the rank reads of each step, at least one.
    """
    return 1 + ceil(loaders / num_chunks)


def contentions_of(
    facts: Facts, nodes: Sequence[Node], threads: Sequence[int], reads: Sequence[float]
) -> list[CoreContention]:
    """Return how each rank's reader and computing share the cores of its node with all others there.

    Args:
        facts: what the seconds of reading are.
        nodes: of each rank.
        threads: of each rank; 0 of one that does not compute.
        reads: how much of a core each rank's reader keeps busy; 0 of one that reads nothing.
    """
    if facts.load_is_waited:
        return [NOTHING_AHEAD] * len(nodes)
    busy: Counter[str] = Counter()
    reading: defaultdict[str, float] = defaultdict(float)
    for node, count, cores in zip(nodes, threads, reads, strict=True):
        busy[node.name] += count
        reading[node.name] += cores
    return [
        _crowd(node, count, busy[node.name], reading[node.name]) for node, count in zip(nodes, threads, strict=True)
    ]


def _crowd(node: Node, threads: int, busy: int, readers: float) -> CoreContention:
    own = node.slowdown(threads) / node.slowdown(1)
    return CoreContention(pace=1 / own, cost=own * (node.slowdown(busy + readers) / node.slowdown(busy) - 1))


def busy_s(read_s: Array, compute_s: Array, contention: CoreContention) -> Array:
    """Return how long a rank is busy, computing or waiting for its samples, element by element; see `read_ahead`."""
    hidden_s = np.minimum(read_s, contention.pace * compute_s)
    return compute_s + contention.cost * hidden_s + read_s - hidden_s


def read_ahead(read_s: float, compute_s: float, contention: CoreContention) -> ReadingCosts:
    """Return what a rank waits for its samples, and how much longer it computes.

    Args:
        read_s: that its samples of a step take to read there, alone.
        compute_s: that their forward and backward take there, alone.
        contention: on its node.
    """
    if not read_s:
        return ReadingCosts(waited=0.0, stretch=1.0)
    hidden_s = min(read_s, compute_s * contention.pace)
    stretch = 1 + hidden_s * contention.cost / compute_s if compute_s else 1.0
    return ReadingCosts(waited=1 - hidden_s / read_s, stretch=stretch)
