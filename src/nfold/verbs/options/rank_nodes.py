"""Which rank lives on which node, and what to say where servers share one."""

from collections.abc import Sequence

from nfold.core.cluster import Cluster
from nfold.core.text.units import count


def tell_shared_servers(nodes: Sequence[str], workers: int) -> str:
    """Say which dedicated servers share a node, and so its link, with other ranks; empty: none does.

    Args:
        nodes: of each rank; dedicated servers come last.
        workers: how many ranks are none.
    """
    shared = {
        server: [rank for rank in range(len(nodes)) if rank != server and nodes[rank] == nodes[server]]
        for server in range(workers, len(nodes))
    }
    told = [
        f"rank {server} serves on {nodes[server]} beside rank{'s' if len(others) > 1 else ''} "
        f"{', '.join(map(str, others))}"
        for server, others in shared.items()
        if others
    ]
    if not told:
        return ""
    num_servers = len(nodes) - workers
    return (
        f"{len(set(nodes))} nodes are too few for {count(workers, 'worker')} and {count(num_servers, 'server')} on "
        f"nodes of their own: {'; '.join(told)}, and they share its cores and link. Use a smaller -n, fewer --servers, "
        "or more nodes."
    )


def nodes_of_ranks(cluster: Cluster, num_ranks: int) -> tuple[str, ...]:
    """Return the node of each rank: in order, and from the first again where there are more ranks than nodes."""
    return tuple(cluster.nodes[rank % len(cluster.nodes)].name for rank in range(num_ranks))
