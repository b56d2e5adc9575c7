"""Who sums how much of the gradients when links differ: the shares with which push, sum and pull take the least time.

A worker i that sums the share w_i of M bytes sends (1 - w_i) M of gradients and n - 1 times w_i M of values, and
receives as much. A dedicated server j sends and receives n v_j M. With B the bytes per second of an access link in each
direction, and pushing overlapped with pulling, the least time in which nobody's link is overloaded is

    T* = max( M / min B_i ,  2 (n - 1) M / ( sum B_i + (1 - 2 / n) sum B_j ) )
    w_i = max(0, (T* B_i / M - 1) / (n - 2)),   v_j = T* B_j / (n M),   scaled to sum to 1

Equal links and no servers make it a ring's 2 (n - 1) / n; equal links and k servers the mixture of BytePS (Jiang et al.
2020, theorem 1). With two workers the sum may be cut in any way.
"""

from dataclasses import dataclass

from nfold.core.cluster import Cluster, Node
from nfold.errors import ClusterError


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerShares:
    """The shares of workers and of dedicated servers, which add up to 1."""

    workers: tuple[float, ...]
    servers: tuple[float, ...]
    seconds_per_byte: float
    """T* / M: the bound of a reduction for each byte of gradients."""


def best_shares(workers: tuple[float, ...], servers: tuple[float, ...] = ()) -> ServerShares:
    """Return the shares for which no link is the only bottleneck.

    Args:
        workers: bytes per second of each worker's link, at least two.
        servers: bytes per second of each dedicated server's link.
    """
    count = len(workers)
    spread = sum(workers) + (1 - 2 / count) * sum(servers)
    seconds = max(1 / min(workers), 2 * (count - 1) / spread)
    serving = [seconds * rate / count for rate in servers]
    if count > 2:
        summing = [max(0.0, (seconds * rate - 1) / (count - 2)) for rate in workers]
    else:
        summing = [max(0.0, 1 - sum(serving)) / count] * count
    total = sum(summing) + sum(serving)
    return ServerShares(
        workers=tuple(weight / total for weight in summing),
        servers=tuple(weight / total for weight in serving),
        seconds_per_byte=seconds,
    )


def link_rates(cluster: Cluster, nodes: tuple[str, ...]) -> tuple[float, ...]:
    """Return the bytes per second that each rank may send while it receives as many.

    Ranks of one node share its links; where all are on one node, each pair has the node's own channel.

    Args:
        cluster: with the links of the nodes.
        nodes: node of each rank.

    Raises:
        ClusterError: ranks are on several nodes, and one of those has no link.
    """
    if len(set(nodes)) == 1:
        return tuple(cluster.node(name).local.bandwidth_bytes_per_s for name in nodes)
    return tuple(_access(cluster.node(name)) / nodes.count(name) for name in nodes)


def _access(node: Node) -> float:
    sides = [side.bandwidth_bytes_per_s for side in (node.uplink, node.downlink) if side is not None]
    if len(sides) < 2:
        raise ClusterError(
            f"node {node.name} lacks an uplink or a downlink, so its share of the sums cannot follow its speed: "
            "measure or declare both, or keep all ranks on one node"
        )
    return min(sides)
