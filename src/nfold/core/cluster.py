"""The machines: nodes with cores and memory, and how fast bytes move in, out and within each."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from nfold.errors import ClusterError

UNLIMITED_BYTES = 1 << 60
"""Memory of a declared node that nobody limits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """A way for bytes: a fixed cost per message and a rate after that."""

    latency_s: float
    bandwidth_bytes_per_s: float
    origin: Literal["measured", "declared"]
    cpu_s_per_byte: float = 0.0
    """Processor seconds that moving one byte costs the two ends together."""
    cpu_s_per_message: float = 0.0
    declared_bytes_per_s: float | None = None
    """Of a measured one: what it was declared to carry, headers included; None where nobody declared it."""

    def __post_init__(self) -> None:
        if not (self.bandwidth_bytes_per_s > 0 and self.latency_s >= 0):
            raise ClusterError(
                f"a channel needs a positive bandwidth and a latency of at least 0, got "
                f"{self.bandwidth_bytes_per_s} bytes/s and {self.latency_s} s"
            )

    def seconds(self, payload_bytes: float) -> float:
        """Return the seconds that one message of so many bytes takes when nothing else uses the channel."""
        return self.latency_s + payload_bytes / self.bandwidth_bytes_per_s

    def end_s(self, payload_bytes: float, num_messages: float = 1) -> float:
        """Return the processor seconds that sending or receiving messages costs one of their two ends.

        Args:
            payload_bytes: of all messages together.
            num_messages: how many there are.
        """
        return (self.cpu_s_per_message * num_messages + self.cpu_s_per_byte * payload_bytes) / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """Accelerators or processors of one kind on a node."""

    kind: str
    """`cpu`, or the accelerator's own name."""
    count: int
    memory_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One host."""

    name: str
    cores: float
    memory_bytes: int
    devices: tuple[Device, ...] = ()
    speed: float = 1.0
    """Compute speed relative to the node that was profiled."""
    unsteadiness: float = 0.0
    """Standard deviation of the time of one forward and backward over its mean, while all nodes compute."""
    price_per_hour: float = 0.0
    num_samples: int | None = None
    """Training samples that live there; None when every node can read all of them."""
    sample_bytes: int | None = None
    """Of one of them, when it is sent; None: nobody said."""
    num_pinned: int = 0
    """Of them, how many may not leave."""
    storage_bytes: int | None = None
    """Room for samples, those that live there among them; None: not limited."""
    samples_per_s: float | None = None
    """Of the program, forward and backward; None: what the program's profile says."""
    site: str = ""
    """Nodes of one site are near each other; empty: it is near to none."""
    local: Channel
    """Between two ranks of this node."""
    uplink: Channel | None = None
    downlink: Channel | None = None
    crowding: tuple[float, ...] = (1.0,)
    """How much slower one core computes while k = 1, 2, .. cores are busy: shared caches, memory and hyper-threads."""
    quota_period_s: float = 0.0
    """Its share of cores is a quota of processor time, granted anew so often; 0: it has no quota."""
    step_cpu_s: float = 0.0
    """Processor seconds that a rank spends on every step beside its tasks and messages: posting receives, waking
    threads, keeping records."""

    def __post_init__(self) -> None:
        if not self.speed > 0:
            raise ClusterError(
                f"node {self.name} has a speed of {self.speed:g}, so nothing that runs there would ever end. "
                "Give it its speed relative to the node that is profiled, or leave it out."
            )

    @property
    def limits_memory(self) -> bool:
        """Whether the node's memory is known, so that a plan must fit into it."""
        return self.memory_bytes < UNLIMITED_BYTES

    def slowdown(self, busy: float) -> float:
        """Return how much longer a one-core task takes while `busy` ranks compute on this node."""
        return self._crowd(busy) * max(1.0, busy / max(self.cores, 1e-9))

    def rushed(self, busy: float) -> float:
        """Return that factor for the time in which the node's quota of processor time is not used up.

        Until then ranks run as if the node had all of the cores that the quota is a share of.
        """
        return self._crowd(busy) * max(1.0, busy / self.whole_cores)

    @property
    def meets_its_quota(self) -> bool:
        """Whether ranks can run ahead of the node's quota after a rest: only where the node has a part of a core."""
        return self.quota_period_s > 0 and self.cores != int(self.cores)

    @property
    def whole_cores(self) -> int:
        """The number of cores that ranks can keep busy at one moment."""
        return max(1, math.ceil(self.cores))

    def _crowd(self, busy: float) -> float:
        used = max(1, round(min(busy, self.cores)))
        return self.crowding[min(len(self.crowding), used) - 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """All nodes. A rank lives on one of them; `Plan.nodes` says which."""

    nodes: tuple[Node, ...]
    is_emulated: bool = False
    """Its nodes are parts of one machine: what the hypervisor or other programs take from that is no node's."""

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        repeated = sorted(name for name, times in Counter(names).items() if times > 1)
        if repeated:
            raise ClusterError(f"two nodes are called {repeated[0]!r}: node names must differ")
        if not names:
            raise ClusterError("a cluster needs at least one node")

    def node(self, name: str) -> Node:
        """Return a node by name.

        Raises:
            ClusterError: there is no such node.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise ClusterError(f"no node is called {name!r}; the cluster has {', '.join(n.name for n in self.nodes)}")
