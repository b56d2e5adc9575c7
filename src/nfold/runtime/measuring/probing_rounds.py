"""Who measures what, and what it says of the machines: which pairs are probed when, and probes and paces -> Cluster.

Pure. Nodes are probed pairwise in the rounds of a round_robin (the circle method), so that no node is in two probes at
once and n nodes need n - 1 rounds. What a node sends at its best is its uplink, what reaches it at best its downlink:
a path is as fast as the slower of the two, and some peer's side is fast enough to show the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, median_high, median_low

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.profile import Pace, Profile
from nfold.transport.probing.probe import BUDGET_S, ProbedPair, lasts_s

PROBING_S = 3.0
"""All probes at the start take less, on links of 1 Mbit/s and more and with less than 10 ms one way."""
LEAST_ROUNDS = 2
"""In the first one a node may rest, and another may meet none but a slow peer."""
MOST_ROUNDS = int(PROBING_S / 1.2 / BUDGET_S)
"""A fifth is left for what orders take. Enough to meet a fast peer; all pairs of 8 nodes, a sample of more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """Two ranks that measure the link between them."""

    measures: int
    echoes: int


def round_robin(nodes: Sequence[str]) -> list[list[Probe]]:
    """Return rounds of probes between the first ranks of different nodes. O(nodes x rounds).

    On one node the first two ranks probe each other.
    """
    first = [nodes.index(name) for name in dict.fromkeys(nodes)]
    if len(first) == 1:
        return [[Probe(measures=0, echoes=1)]] if len(nodes) > 1 else []
    circle: list[int | None] = [*first, *([None] if len(first) % 2 else [])]
    rounds = []
    for _ in range(min(MOST_ROUNDS, len(circle) - 1)):
        pairs = zip(circle[: len(circle) // 2], reversed(circle[len(circle) // 2 :]), strict=True)
        rounds.append([Probe(measures=a, echoes=b) for a, b in pairs if a is not None and b is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds


def affordable(num_rounds: int, first: Mapping[Probe, ProbedPair]) -> int:
    """Return how many rounds of probes to make: fewer where pairs are distant or badly linked.

    Args:
        num_rounds: in which all pairs meet.
        first: what the first round found.
    """
    farthest_s = max(pair.latency_s for pair in first.values())
    slowest = min(min(pair.there_bytes_per_s, pair.back_bytes_per_s) for pair in first.values())
    return min(num_rounds, max(LEAST_ROUNDS, int(PROBING_S / lasts_s(farthest_s, slowest))))


def with_links(cluster: Cluster, nodes: Sequence[str], probed: Mapping[Probe, ProbedPair]) -> Cluster:
    """Return the cluster with the channels that probes found; nodes that no probe touched keep theirs."""
    found: dict[str, list[tuple[float, float, ProbedPair]]] = {}
    local: dict[str, ProbedPair] = {}
    for probe, pair in probed.items():
        here, there = nodes[probe.measures], nodes[probe.echoes]
        if here == there:
            local[here] = pair
        else:
            found.setdefault(here, []).append((pair.there_bytes_per_s, pair.back_bytes_per_s, pair))
            found.setdefault(there, []).append((pair.back_bytes_per_s, pair.there_bytes_per_s, pair))
    probed_nodes = tuple(_with_channels(node, found.get(node.name, []), local) for node in cluster.nodes)
    return replace(cluster, nodes=probed_nodes)


def with_rate(cluster: Cluster, bytes_per_s: float) -> Cluster:
    """Return the cluster with the same rate in both directions of every node's link, as declared."""

    def turned(channel: Channel | None) -> Channel:
        latency_s = channel.latency_s if channel else 0.0
        return Channel(latency_s=latency_s, bandwidth_bytes_per_s=bytes_per_s, origin="declared")

    nodes = (replace(node, uplink=turned(node.uplink), downlink=turned(node.downlink)) for node in cluster.nodes)
    return replace(cluster, nodes=tuple(nodes))


UNDECLARED_BYTES_PER_S = 1.25e9
"""What a link is taken to carry before it is probed that nobody has declared, and that no emulation limits."""


def with_fast_links(cluster: Cluster) -> Cluster:
    """Return the cluster with fast links where none are declared, to be planned with before anything is probed."""
    fast = Channel(latency_s=0.0, bandwidth_bytes_per_s=UNDECLARED_BYTES_PER_S, origin="declared")
    return replace(
        cluster,
        nodes=tuple(
            replace(node, uplink=node.uplink or fast, downlink=node.downlink or fast) for node in cluster.nodes
        ),
    )


BITS_OF_STEP = 1500
"""What a rank's processor spends on a step beside its tasks and messages, in bits of bookkeeping (see `Pace`)."""
BITS_OF_TENSOR = 88
"""What it spends on each trained tensor of a model, in the same bits: its gradient is noted and laid where its bucket
is, its batch norm's statistics are kept, and messages between passes leave none of that in the caches."""
BYTES_IN_STEPS = 1.3
"""Times the processor seconds that a byte costs in a probe. In a step bytes come out of no cache, and some of them are
added to what is there. A message costs as much as in a probe: account is kept of it, but several come at one waking."""


HELD_UP = 0.12
"""A rank whose passes are by this much slower than is typical, beyond what is declared of its node, computes again."""
MOST_PACES = 3
"""How often all may compute at once."""
_FASTER = 0.1


def expected_passes_s(
    cluster: Cluster,
    nodes: Sequence[str],
    threads: Sequence[int],
    profiles: Mapping[int, Profile],
    chunk_size: int,
) -> list[float]:
    """Return the seconds of each worker's pass on nodes like the profiled one, when all of a node compute at once.

    Args:
        cluster: as known so far.
        nodes: of each rank, workers first.
        threads: of each worker.
        profiles: by threads, measured while the other ranks rested.
        chunk_size: of a pass.
    """
    busy: dict[str, int] = {}
    for name, count in zip(nodes, threads, strict=False):
        busy[name] = busy.get(name, 0) + count
    found = []
    for name, count in zip(nodes, threads, strict=False):
        node, alone_s = cluster.node(name), sum(profiles[count].whole_s(chunk_size))
        found.append(alone_s * node.slowdown(busy[name]) / node.slowdown(count))
    return found


def longest_pass_s(cluster: Cluster, nodes: Sequence[str], passes_s: Sequence[float], *, profiler: int) -> float:
    """Return the seconds of the slowest worker's forward and backward, as the declared speeds of nodes suggest.

    Args:
        cluster: with these speeds.
        nodes: of each rank.
        passes_s: of each worker, if its node were as fast as the profiler's.
        profiler: rank that profiled.
    """
    speeds = [declared_speed(cluster.node(name)) for name in nodes]
    return max(pass_s * speeds[profiler] / speed for pass_s, speed in zip(passes_s, speeds, strict=False))


def seems_held_up(cluster: Cluster, nodes: Sequence[str], passes_s: Sequence[float], paces: Mapping[int, Pace]) -> bool:
    """Return whether a rank was slow: its node is, or the machine's neighbours slowed it down for the moment.

    Args:
        cluster: as known so far.
        nodes: of each rank.
        passes_s: expected of each worker.
        paces: measured, by rank.
    """
    speeds = [passes_s[rank] / pace.mean_s / declared_speed(cluster.node(nodes[rank])) for rank, pace in paces.items()]
    return min(speeds) < (1 - HELD_UP) * median_high(speeds)


def best_of(before: Mapping[int, Pace], again: Mapping[int, Pace]) -> tuple[dict[int, Pace], bool]:
    """Return of each rank the faster pace, and whether one was much faster the second time: it had been held up."""
    best = {
        rank: replace(
            min(pace, again[rank], key=lambda each: each.mean_s),
            bookkeeping_s=min(pace.bookkeeping_s, again[rank].bookkeeping_s),
        )
        for rank, pace in before.items()
    }
    return best, any(best[rank].mean_s < (1 - _FASTER) * pace.mean_s for rank, pace in before.items())


def with_paces(
    cluster: Cluster, nodes: Sequence[str], passes_s: Sequence[float], paces: Mapping[int, Pace], *, num_tensors: int
) -> Cluster:
    """Return the cluster with each node's speed, unsteadiness and cost of a step, from one chunk while all computed.

    Nodes on which nobody computed, those of servers, are as much faster or slower than they were thought to be as the
    others typically are: the profile was taken while all but one rested, which tells on all of them. Their steps
    cost what they typically do without a backward.

    Bookkeeping is measured in two short moments, passes for much longer. So no node's counts for more than is typical,
    except by as much as its passes are slower than that.

    Args:
        cluster: as known so far.
        nodes: of each rank.
        passes_s: expected of each worker; see `expected_passes_s`.
        paces: measured, by rank.
        num_tensors: that are trained.
    """
    bits: dict[str, list[float]] = {}
    speeds: dict[str, list[float]] = {}
    swings: dict[str, list[float]] = {}
    for rank, pace in paces.items():
        name = nodes[rank]
        speeds.setdefault(name, []).append(passes_s[rank] / pace.mean_s)
        swings.setdefault(name, []).append(pace.deviation_s / pace.mean_s)
        bits.setdefault(name, []).append(pace.bookkeeping_s)
    typical = median(fmean(found) / declared_speed(cluster.node(name)) for name, found in speeds.items())
    typical_s = median_low(pace.bookkeeping_s for pace in paces.values())

    def bookkeeping_s(node: Node) -> float:
        if node.name not in bits:
            return typical_s
        slower = typical * declared_speed(node) / fmean(speeds[node.name])
        return min(fmean(bits[node.name]), typical_s * max(1.0, slower))

    return replace(
        cluster,
        nodes=tuple(
            replace(
                node,
                speed=round(fmean(speeds.get(node.name, [typical * declared_speed(node)])), 4),
                unsteadiness=round(fmean(swings[node.name]), 4) if node.name in swings else node.unsteadiness,
                step_cpu_s=_bits(num_tensors, computes=node.name in bits) * bookkeeping_s(node),
            )
            for node in cluster.nodes
        ),
    )


def _bits(num_tensors: int, *, computes: bool) -> int:
    return BITS_OF_STEP + BITS_OF_TENSOR * num_tensors * computes


def declared_speed(node: Node) -> float:
    """How fast a node is by what is declared: a task gets no more than its share of a core in the long run."""
    return node.speed * (min(1.0, node.cores) if node.quota_period_s else 1.0)


def _with_channels(node: Node, found: list[tuple[float, float, ProbedPair]], local: Mapping[str, ProbedPair]) -> Node:
    if node.name in local:
        pair = local[node.name]
        rate = (pair.there_bytes_per_s + pair.back_bytes_per_s) / 2
        node = replace(node, local=_channel(pair.latency_s, rate, [pair]))
    if not found:
        return node
    pairs = [pair for _, _, pair in found]
    latency_s = min(pair.latency_s for pair in pairs) / 2
    return replace(
        node,
        uplink=_channel(latency_s, max(sent for sent, _, _ in found), pairs, node.uplink),
        downlink=_channel(latency_s, max(received for _, received, _ in found), pairs, node.downlink),
    )


def _channel(
    latency_s: float, bandwidth_bytes_per_s: float, pairs: list[ProbedPair], before: Channel | None = None
) -> Channel:
    """Return a measured channel that still knows what it was declared to carry."""
    return Channel(
        latency_s=latency_s,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        origin="measured",
        cpu_s_per_byte=BYTES_IN_STEPS * median(pair.cpu_s_per_byte for pair in pairs),
        cpu_s_per_message=median(pair.cpu_s_per_message for pair in pairs),
        declared_bytes_per_s=_declared_bytes_per_s(before) if before else None,
    )


def _declared_bytes_per_s(channel: Channel) -> float | None:
    return channel.bandwidth_bytes_per_s if channel.origin == "declared" else channel.declared_bytes_per_s
