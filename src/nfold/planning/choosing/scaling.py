"""How long a step takes on more nodes than there are: the same program and nodes, repeated, on up to thousands.

The nodes of workers are repeated in their order, and so are those of dedicated servers; one rank on each. It is played
in coarse virtual time (`simulation/coarse.py`): for a ring and for servers on even links within 3 % of the
message-level simulator where both can be asked, for weighted shares up to 15 % off.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nfold.core.cluster import Cluster, Node
from nfold.core.placement import Reduction
from nfold.core.profile import Profile
from nfold.errors import ClusterError, PlanError
from nfold.planning.choosing.strategies import named
from nfold.planning.costs.read_ahead import CoreContention, ReadingCosts, contentions_of, read_ahead
from nfold.planning.inputs.facts import Facts, Proposal
from nfold.planning.reductions.buckets import completion, users_of
from nfold.planning.reductions.statistics_groups import statistics_groups
from nfold.simulation.coarse import CoarseBucket, CoarseRank, coarse_step_s

SCALABLE = ("ring", "ps", "weighted")
"""Strategies in which every worker computes the whole model and a step waits for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingPoint:
    """The predicted step on some number of nodes."""

    workers: int
    servers: int
    batch_size: int
    step_s: float

    @property
    def samples_per_s(self) -> float:
        """The samples per second of all workers together."""
        return self.batch_size / self.step_s


def predict_scaling(
    facts: Facts,
    strategy: str,
    worker_counts: Sequence[int],
    *,
    grow_batch: bool = False,
    servers: int | None = None,
) -> tuple[ScalingPoint, ...]:
    """Predict a strategy's step time on other numbers of nodes.

    Args:
        facts: the program, its profile, and the nodes that are repeated: nodes without a rank are a worker's, too.
        strategy: `ring`, `ps` or `weighted`.
        worker_counts: how many workers, each alone on its node.
        grow_batch: give each worker as many samples as it has in `facts` (weak scaling), instead of cutting the same
            batch into more chunks; then no more workers than samples are possible.
        servers: of their own, whatever the number of workers; None: in the proportion of `facts`.

    Returns:
        One point for each count.

    Raises:
        PlanError: the strategy is another, or there are more workers than samples.
        ClusterError: a node has no link to others.
    """
    if strategy not in SCALABLE:
        raise PlanError(f"the scaling of {strategy} cannot be predicted, only that of {', '.join(SCALABLE)}")
    found = []
    for count in worker_counts:
        serving = round(facts.servers * count / facts.workers) if servers is None else servers
        found.append(_point(_repeated(facts, count, serving, grow_batch), strategy))
    return tuple(found)


def _repeated(facts: Facts, workers: int, servers: int, grow_batch: bool) -> Facts:
    grown = max(workers, round(facts.batch_size * workers / facts.workers))
    batch_size = grown if grow_batch else facts.batch_size
    if workers > batch_size:
        raise PlanError(f"{workers} workers cannot share a batch of {batch_size} samples")
    working, serving = facts.nodes[: facts.workers], facts.nodes[facts.workers :]
    theirs = [node for node in facts.cluster.nodes if node.name in working or node.name not in serving]
    hosts = [facts.cluster.node(name) for name in dict.fromkeys(serving)] or theirs
    ranks = [theirs[index % len(theirs)] for index in range(workers)]
    ranks += [hosts[index % len(hosts)] for index in range(servers)]
    nodes = tuple(replace(node, name=f"{node.name}-{rank}") for rank, node in enumerate(ranks))
    return replace(
        facts,
        cluster=Cluster(nodes=nodes),
        nodes=tuple(node.name for node in nodes),
        workers=workers,
        servers=servers,
        batch_size=batch_size,
        chunks=None,
        chunk_shares=(),
    )


def _point(facts: Facts, strategy: str) -> ScalingPoint:
    step_s = min(coarse_proposal_s(facts, proposal) for proposal in named(strategy).propose(facts))
    return ScalingPoint(workers=facts.workers, servers=facts.servers, batch_size=facts.batch_size, step_s=step_s)


def coarse_proposal_s(facts: Facts, proposal: Proposal) -> float:
    """Return the seconds of a data-parallel step in coarse virtual time, with each rank alone on its node.

    Raises:
        ClusterError: a node has no link to others.
    """
    sizes = facts.chunk_sizes(proposal.placement.num_chunks)
    owners = next(iter(proposal.placement.owners.values()))
    chunks: list[list[int]] = [[] for _ in range(proposal.placement.world_size)]
    for chunk, rank in enumerate(owners):
        chunks[rank].append(sizes[chunk])
    alone = proposal.placement.world_size == 1
    profiles = facts.profiles_of(facts.threads(len(facts.nodes)))
    computing = [profile.num_threads if own else 0 for profile, own in zip(profiles, chunks, strict=True)]
    reads = [profile.reading_cores if own else 0.0 for profile, own in zip(profiles, chunks, strict=True)]
    contentions = contentions_of(facts, facts.cluster.nodes, computing, reads)
    speeds = [node.speed for node in facts.cluster.nodes]
    readings = [_reading(*each) for each in zip(chunks, profiles, speeds, contentions, strict=True)]
    ranks = [
        _rank(node, own, profile, reading, alone=alone)
        for node, own, profile, reading in zip(facts.cluster.nodes, chunks, profiles, readings, strict=True)
    ]
    last_s = [
        profile.whole_s(own[-1])[1] * reading.stretch / node.speed if own and own[-1] else 0.0
        for node, own, profile, reading in zip(facts.cluster.nodes, chunks, profiles, readings, strict=True)
    ]
    ends_s = [(rank.compute_s, backward_s) for rank, backward_s in zip(ranks, last_s, strict=True)]
    rows = sum(group.num_elements * group.item_bytes for group in statistics_groups(facts.graph, proposal.placement))
    buckets = _buckets(facts, proposal.reductions, profiles[0], max(sizes), ends_s)
    return coarse_step_s(tuple(ranks), tuple(buckets), rows)


def _rank(node: Node, samples: Sequence[int], profile: Profile, reading: ReadingCosts, *, alone: bool) -> CoarseRank:
    links = (node.local, node.local) if alone else (node.uplink, node.downlink)
    uplink, downlink = links
    if uplink is None or downlink is None:
        raise ClusterError(f"node {node.name} has no uplink or no downlink, so nothing can be said of more nodes")
    now_s = node.step_cpu_s * node.slowdown(1)
    forwards: list[float] = []
    slower = reading.stretch / node.speed
    for size in samples:
        forward_s, backward_s = (seconds * slower for seconds in profile.whole_s(size)) if size else (0.0, 0.0)
        now_s += reading.waited * profile.load_s(size, node.speed) + forward_s
        forwards.append(now_s)
        now_s += backward_s
    return CoarseRank(
        forwards_s=tuple(forwards),
        compute_s=now_s,
        cores=node.cores,
        speed=node.speed,
        uplink=uplink,
        downlink=downlink,
    )


def _reading(samples: Sequence[int], profile: Profile, speed: float, contention: CoreContention) -> ReadingCosts:
    """What a rank waits for its samples, and computes longer because it reads."""
    compute_s = sum(sum(profile.whole_s(size)) for size in samples if size)
    return read_ahead(profile.load_s(sum(samples), speed), compute_s / speed, contention)


def _buckets(
    facts: Facts,
    reductions: tuple[Reduction, ...],
    profile: Profile,
    chunk_size: int,
    ends_s: Sequence[tuple[float, float]],
) -> Iterator[CoarseBucket]:
    """Yield the buckets; `ends_s` says for each rank when its last backward ends and how long that takes."""
    seconds = profile.operators_s(chunk_size)
    names = tuple(operator.name for operator in facts.graph.operators)
    trained = sum(parameter.num_elements for parameter in facts.graph.trained) or 1
    for reduction in reductions:
        share = reduction.num_elements / trained
        fraction = completion(names, users_of(facts.graph, reduction), seconds)
        yield CoarseBucket(
            reduction=reduction,
            ready_s={rank: ends_s[rank][0] - (1 - fraction) * ends_s[rank][1] for rank in reduction.members},
            update_s=profile.update_s(share),
            call_s=profile.call_s,
        )
