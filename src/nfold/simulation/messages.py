"""Messages between ranks: one after another per peer, over a node's own channel or over the wires between nodes.

    same node     bytes at the local channel's rate, for each pair of ranks
    other nodes   bytes at a max-min fair share of the sender's uplink and the receiver's downlink

Half of a channel's processor work is done at either end, by the one thread of a rank that moves its messages: one after
another, on its node's cores. A message is through when its bytes are and both have done their work.

Latency delays the arrival and not the sender, so messages behind each other pay it once. An idle cluster therefore
moves one message in max(latency + bytes / bandwidth, processor work).
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nfold.core.cluster import Channel, Cluster, Node
from nfold.errors import ClusterError
from nfold.simulation.cores import Cores
from nfold.simulation.links import Network, SharedLink
from nfold.simulation.virtual_time import Action, VirtualTime, both, join


class Message(NamedTuple):
    """Bytes from one rank to another; `gone` is played at the sender, `arrived` at the receiver."""

    sender: int
    receiver: int
    payload_bytes: int
    gone: Action
    arrived: Action


class _Route(NamedTuple):
    """The way from a rank to one on another node."""

    source: Node
    target: Node
    uplink: Channel
    downlink: Channel
    links: tuple[SharedLink, ...]
    latency_s: float


class Courier:
    """Moves all messages of a cluster in virtual time."""

    def __init__(
        self, timeline: VirtualTime, cluster: Cluster, nodes: tuple[str, ...], cores: Mapping[str, Cores]
    ) -> None:
        self._timeline = timeline
        self._cores = cores
        self._node_of = tuple(cluster.node(name) for name in nodes)
        self._share = {node.name: max(node.cores, 1e-9) for node in cluster.nodes}
        self._network = Network(timeline)
        self._queues: defaultdict[tuple[int, int], deque[Message]] = defaultdict(deque)
        self._routes: dict[tuple[int, int], _Route] = {}
        self._jobs: defaultdict[int, deque[tuple[float, Action]]] = defaultdict(deque)
        """Of each rank's thread: processor seconds, and what is played when they are done."""
        self._up: dict[str, SharedLink] = {}
        self._down: dict[str, SharedLink] = {}

    def send(self, message: Message) -> None:
        """Move a message once all earlier messages to the same peer have gone.

        Raises:
            ClusterError: the ranks are on two nodes and one of them has no link to the other.
        """
        queue = self._queues[message.sender, message.receiver]
        queue.append(message)
        if len(queue) == 1:
            self._start(message)

    def _start(self, message: Message) -> None:
        if self._node_of[message.sender].name == self._node_of[message.receiver].name:
            self._start_local(message)
        else:
            self._start_remote(message)

    def _gone(self, message: Message) -> None:
        queue = self._queues[message.sender, message.receiver]
        queue.popleft()
        if queue:
            self._start(queue[0])
        message.gone()  # last, since it may send the next one

    def _start_local(self, message: Message) -> None:
        node = self._node_of[message.sender]
        wire_s = message.payload_bytes / node.local.bandwidth_bytes_per_s
        sent, received = self._ends(message)
        work_s = node.local.end_s(message.payload_bytes)
        self._work(message.sender, work_s, both(sent, received))
        self._work(message.receiver, work_s, received)
        now = self._timeline.now
        self._timeline.at(now + wire_s, sent)
        self._timeline.at(now + node.local.latency_s + wire_s, received)

    def _start_remote(self, message: Message) -> None:
        route = self._route(message.sender, message.receiver)
        send_s = route.uplink.end_s(message.payload_bytes)
        receive_s = route.downlink.end_s(message.payload_bytes)
        if send_s or receive_s:
            sent, received = self._ends(message)
        else:
            sent, received = partial(self._gone, message), message.arrived

        def left() -> None:
            sent()
            self._timeline.at(self._timeline.now + route.latency_s, received)

        self._network.start(message.payload_bytes, route.links, left)
        if send_s or receive_s:
            self._work(message.sender, send_s, both(sent, received))
            self._work(message.receiver, receive_s, received)

    def _route(self, sender: int, receiver: int) -> _Route:
        known = self._routes.get((sender, receiver))
        if known is None:
            source, target = self._node_of[sender], self._node_of[receiver]
            uplink, downlink = self._channel(sender, "uplink"), self._channel(receiver, "downlink")
            up = self._up.setdefault(source.name, SharedLink(uplink.bandwidth_bytes_per_s))
            down = self._down.setdefault(target.name, SharedLink(downlink.bandwidth_bytes_per_s))
            latency_s = uplink.latency_s + downlink.latency_s
            known = self._routes[sender, receiver] = _Route(source, target, uplink, downlink, (up, down), latency_s)
        return known

    def _work(self, rank: int, work_s: float, done: Action) -> None:
        """Let a rank's thread do something after what it has to do."""
        if work_s <= 0:
            done()
            return
        jobs = self._jobs[rank]
        jobs.append((work_s, done))
        if len(jobs) == 1:
            self._begin_work(rank)

    def _begin_work(self, rank: int) -> None:
        node, (work_s, _) = self._node_of[rank].name, self._jobs[rank][0]
        # Processor seconds, on a node that may have less than one core to give.
        alone_s = work_s * max(1.0, 1.0 / self._share[node])
        self._cores[node].start(alone_s, 1.0, partial(self._worked, rank))

    def _worked(self, rank: int) -> None:
        jobs = self._jobs[rank]
        _, done = jobs.popleft()
        if jobs:
            self._begin_work(rank)
        done()

    def _ends(self, message: Message) -> tuple[Action, Action]:
        """The sender waits for the wire and its own job, the receiver for the last byte and both jobs."""
        return join(2, partial(self._gone, message)), join(3, message.arrived)

    def _channel(self, rank: int, side: str) -> Channel:
        node = self._node_of[rank]
        channel = node.uplink if side == "uplink" else node.downlink
        if channel is None:
            raise ClusterError(
                f"node {node.name} has no {side}, so rank {rank} cannot talk to ranks on other nodes: measure or "
                f"declare the {side} of {node.name} in the cluster file, or keep all ranks on one node"
            )
        return channel
