"""What is taken to hold of a node that joins, before anything of it is measured. Pure.

A node of an emulated cluster is declared: its links carry as much of what is declared as those of the others do, and a
core of its is as fast as theirs. So nobody need stop to measure it.
"""

from dataclasses import replace
from statistics import median

from nfold.core.cluster import Channel, Cluster, Node
from nfold.runtime.measuring.probing_rounds import declared_speed


def as_if_measured(cluster: Cluster, node: Node) -> Node:
    """Return a node that joins a cluster whose nodes are measured, as it is to be planned with.

    Args:
        cluster: before it joins.
        node: as its agent describes it, or as it is declared.
    """
    first = cluster.nodes[0]
    alike = replace(node, local=first.local, crowding=first.crowding, step_cpu_s=first.step_cpu_s)
    if not cluster.is_emulated:
        return alike
    return replace(
        alike,
        speed=declared_speed(node) * _typical_core(cluster),
        unsteadiness=median(each.unsteadiness for each in cluster.nodes),
        uplink=_link(node.uplink, [each.uplink for each in cluster.nodes]),
        downlink=_link(node.downlink, [each.downlink for each in cluster.nodes]),
    )


def _typical_core(cluster: Cluster) -> float:
    """Return how fast a whole core of an emulated node is; all are this machine's."""
    return median(each.speed / declared_speed(replace(each, speed=1.0)) for each in cluster.nodes)


def _link(declared: Channel | None, others: list[Channel | None]) -> Channel | None:
    """Return a declared link as if it had been probed; one that nobody declared is like the fastest of the others."""
    probed = [link for link in others if link is not None and link.origin == "measured"]
    if not probed or declared is None:
        return declared if probed == [] else max(probed, key=lambda link: link.bandwidth_bytes_per_s)
    carried = [link.bandwidth_bytes_per_s / link.declared_bytes_per_s for link in probed if link.declared_bytes_per_s]
    return replace(
        declared,
        bandwidth_bytes_per_s=declared.bandwidth_bytes_per_s * min(1.0, median(carried or [1.0])),
        origin="measured",
        cpu_s_per_byte=median(link.cpu_s_per_byte for link in probed),
        cpu_s_per_message=median(link.cpu_s_per_message for link in probed),
        declared_bytes_per_s=declared.bandwidth_bytes_per_s,
    )
