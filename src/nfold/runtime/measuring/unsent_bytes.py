"""How many bytes a rank hands to the network at once: beyond these, the order of messages is no longer its own."""

from collections.abc import Sequence

from nfold.core.cluster import Cluster, Node
from nfold.transport.protocol import Transport

MOMENT_S = 0.01
"""What a link carries in that time keeps it busy until a thread is awake."""


def unsent_bytes(cluster: Cluster, nodes: Sequence[str]) -> list[int | None]:
    """Return for each rank what its uplink carries in a moment, or while its quota lets it wait; None: it has none.

    Args:
        cluster: with the speeds of its links.
        nodes: of each rank.
    """
    return [_unsent_bytes(cluster.node(name)) for name in nodes]


def _unsent_bytes(node: Node) -> int | None:
    if node.uplink is None:
        return None
    waits_s = node.quota_period_s if node.meets_its_quota else 0.0
    return int(max(MOMENT_S, waits_s) * node.uplink.bandwidth_bytes_per_s)


def limit_unsent(transport: Transport, nodes: Sequence[str], num_bytes: Sequence[int | None]) -> None:
    """Tell a transport how much may wait on the way to each peer: no limit counts within the node.

    Args:
        transport: connected.
        nodes: of each rank of a plan; the transport's other peers have no part in it.
        num_bytes: of each rank; see `unsent_bytes`.
    """
    own = transport.rank
    for peer, node in enumerate(nodes):
        if peer != own:
            transport.limit_unsent(peer, None if node == nodes[own] else num_bytes[own])


def lift_limits(transport: Transport) -> None:
    """Remove the limits, so that the next probe does not depend on the plan before."""
    for peer in range(transport.world_size):
        if peer != transport.rank:
            transport.limit_unsent(peer, None)
