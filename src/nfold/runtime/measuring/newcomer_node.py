"""What is known of a host that was measured by itself while others train: its speed and its link. Pure."""

from dataclasses import replace

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.profile import Pace
from nfold.runtime.measuring.probing_rounds import Probe, with_links, with_paces
from nfold.transport.probing.probe import ProbedPair


def with_pace(node: Node, pace: Pace, pass_s: float, *, num_tensors: int) -> Node:
    """Return a node with the speed that it showed by itself.

    Args:
        node: as it was declared.
        pace: measured there.
        pass_s: of the same on the node that was profiled.
        num_tensors: that are trained.
    """
    alone = with_paces(Cluster(nodes=(node,)), (node.name,), (pass_s,), {0: pace}, num_tensors=num_tensors)
    return alone.nodes[0]


def with_link(node: Node, peer: Node, pair: ProbedPair) -> tuple[Node, Node]:
    """Return a node, and its peer, with what a probe found that the node made while its peer trained.

    What else the peer sent and received meanwhile makes the rates lower bounds. For the same reason processor time is
    that of the peer's link, which was probed at rest; a peer that had no link yet has this one.
    """
    both = with_links(Cluster(nodes=(node, peer)), (node.name, peer.name), {Probe(measures=0, echoes=1): pair})
    found, found_peer = both.nodes
    if peer.uplink is None or peer.downlink is None:
        return found, found_peer
    return replace(
        found, uplink=_as_cheap(found.uplink, peer.uplink), downlink=_as_cheap(found.downlink, peer.downlink)
    ), peer


def _as_cheap(found: Channel | None, at_rest: Channel) -> Channel | None:
    if found is None:
        return None
    return replace(found, cpu_s_per_byte=at_rest.cpu_s_per_byte, cpu_s_per_message=at_rest.cpu_s_per_message)
