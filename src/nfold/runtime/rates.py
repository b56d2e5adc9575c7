"""What a rank's transport is told of the ways to its peers."""

from collections.abc import Sequence
from math import inf

from nfold.transport.base import Transport


def expect_rates(transport: Transport, nodes: Sequence[str], uplinks_bytes_per_s: Sequence[float | None]) -> None:
    """Tell a transport how fast it sends to each peer: as its node's uplink, or at any speed within the node.

    Args:
        transport: connected.
        nodes: of each rank of a plan; the transport's other peers have no part in it.
        uplinks_bytes_per_s: of each rank's node; None: it has none.
    """
    own = transport.rank
    for peer, node in enumerate(nodes):
        if peer != own:
            transport.expect_rate(peer, inf if node == nodes[own] else uplinks_bytes_per_s[own] or inf)


def expect_nothing(transport: Transport) -> None:
    """Take all that back, as before the first plan: what is probed next shall not hang on the plan before."""
    for peer in range(transport.world_size):
        if peer != transport.rank:
            transport.expect_rate(peer, inf)
