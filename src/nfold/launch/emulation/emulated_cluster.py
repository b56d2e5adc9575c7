"""A cluster in a box: nodes as namespaces of this machine, with shaped links and shares of cores and memory."""

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from nfold.core.cluster import Channel, Cluster, Node
from nfold.errors import ClusterError
from nfold.launch.emulation.cgroups import LEAST_QUOTA_US, PERIOD_US, cpu_quota
from nfold.launch.emulation.clearing import NAMESPACES, clear, groups_of, restore_machine
from nfold.launch.emulation.ip_and_tc import perform
from nfold.launch.emulation.namespaces import (
    DEVICE,
    Batch,
    NodeNamespace,
    hosts,
    make_seats,
    network,
    separation,
    switch_namespace,
)
from nfold.launch.emulation.owners import Registry, this_process
from nfold.launch.emulation.shaping import MOST_BURST_BYTES, burst_bytes, packets, shape, window_bytes
from nfold.launch.emulation.watchdog import watchdog

_TOOLS = ("ip", "tc", "nsenter", "unshare", "mount")
CONGESTION_SWITCH = "/proc/sys/net/ipv4/tcp_congestion_control"
CONGESTION_CONTROLS = ("cubic", "reno")
"""The first that the kernel allows in a namespace. Nearly every machine uses cubic. One that emulates may use BBR, that
takes the round trip of an idle link, here some microseconds, for that of a full one and leaves a fifth of it unused."""
WINDOW_SWITCH = "/proc/sys/net/ipv4/tcp_rmem"
_LEAST_BUFFER, _FIRST_BUFFER = 4096, 128 << 10
_BUFFER_PER_WINDOW = 2
"""The kernel counts what it needs to keep a segment, too, and offers half of its buffer."""


class EmulatedCluster:
    """An emulated cluster; `emulated` makes and removes one.

    What changes it raises a ClusterError where the kernel refuses, and names the node or the device.
    """

    def __init__(self, cluster: Cluster, number: int, folder: Path) -> None:
        self.cluster, self.folder, self.number = cluster, folder, number
        self._cores = {node.name: node.cores for node in cluster.nodes}
        self._seats = {seat.node: seat for seat in make_seats(number, [node.name for node in cluster.nodes])}
        self._groups = groups_of(number)
        self._hosts = folder / "hosts"
        self.has_netem = False
        self._bursts: dict[str, int] = {}
        """Largest bucket so far by node (its uplink) and port (its downlink)."""

    # Making and removing

    def build(self) -> None:
        """Make everything; processor time is not limited yet.

        Raises:
            ClusterError: this machine does not allow it.
        """
        self._hosts.write_text(hosts(tuple(self._seats.values())), encoding="utf-8")
        for batch in network(self.number, tuple(self._seats.values())):
            perform(batch)
        self.has_netem = self._is_late and self._netem_works()
        for batch in self._shapes():
            perform(batch)
        self._groups.create(self.cluster.nodes)

    def limit_cores(self) -> None:
        """Hold every node to its share of cores, from now on."""
        for name, cores in self._cores.items():
            self._groups.set_cores(name, cores)

    # What is in it

    @property
    def notes(self) -> list[str]:
        """What a user should know of how true this box is."""
        found = []
        if self._is_late and not self.has_netem:
            found.append(
                "this kernel cannot delay packets (it lacks netem): nfold delays what its own ranks receive instead; "
                "other programs see no latency"
            )
        declared, real = sum(self._cores.values()), len(os.sched_getaffinity(0))
        if declared > real:
            found.append(
                f"the nodes declare {declared:g} cores together and this machine has {real}: they are slower than "
                "declared while all of them compute"
            )
        unlike = [f"{node.name} ({node.speed:g})" for node in self.cluster.nodes if node.speed != 1.0]
        if unlike:
            found.append(
                f"speed is not emulated, since all cores are this machine's: {', '.join(unlike)}. "
                "Give a slow node fewer cores"
            )
        long = {node.name: cpu_quota(node.cores)[1] for node in self.cluster.nodes}
        late = [f"{name} ({period_us / 1e3:g} ms)" for name, period_us in long.items() if period_us > PERIOD_US]
        if late:
            found.append(
                f"so small a share of a core is granted at longer intervals than {PERIOD_US / 1e3:g} ms, since the "
                f"kernel grants no less than {LEAST_QUOTA_US / 1e3:g} ms: {', '.join(late)}"
            )
        return found

    def address(self, node: str) -> str:
        """Return a node's address in the emulated network, as 10.77.0.3."""
        return self._seats[node].address

    def delay_s(self, source: str, target: str) -> float:
        """Return how much later than the kernel does it a message must be delivered; 0.0 where the kernel delays."""
        if source == target or self.has_netem:
            return 0.0
        uplink, downlink = self.cluster.node(source).uplink, self.cluster.node(target).downlink
        return (uplink.latency_s if uplink else 0.0) + (downlink.latency_s if downlink else 0.0)

    def enter(self, node: str, command: Sequence[str]) -> list[str]:
        """Return what runs a command on a node: in its groups and namespaces, under its name.

        Every step replaces the process by the next one, so that its number and its exit code are those of the command.
        """
        seat = self._seats[node]
        process_lists = [f"echo 0 > {shlex.quote(str(processes))}" for processes in self._groups.process_lists(node)]
        inside = [
            f"echo {shlex.quote(node)} > /proc/sys/kernel/hostname",
            f"mount --bind {shlex.quote(str(self._hosts))} /etc/hosts",
            f"{{ {' || '.join(f'echo {each} > {CONGESTION_SWITCH} 2>/dev/null' for each in CONGESTION_CONTROLS)}; }}",
            f"echo {_LEAST_BUFFER} {_FIRST_BUFFER} {self._buffer_bytes(node)} > {WINDOW_SWITCH}",
            'exec "$@"',
        ]
        # Not `ip netns exec`: it mounts another /sys, in which the control groups are missing.
        entering = ["exec", "nsenter", f"--net={NAMESPACES / seat.namespace}", "unshare", "--uts", "--mount"]
        entering += ["sh", "-c", shlex.quote(" && ".join(inside)), "sh", '"$@"']
        return ["sh", "-c", " && ".join([*process_lists, " ".join(entering)]), "sh", *command]

    # Changing it

    def set_uplink(self, node: str, bytes_per_s: float | None) -> None:
        """Change the rate at which a node sends; None: back to what is declared."""
        for batch in self._shape_uplink(self._seats[node], _at_rate(self.cluster.node(node).uplink, bytes_per_s)):
            perform(batch)

    def set_downlink(self, node: str, bytes_per_s: float | None) -> None:
        """Change the rate at which a node receives; None: back to what is declared."""
        perform(self._shape_downlink(self._seats[node], _at_rate(self.cluster.node(node).downlink, bytes_per_s)))

    def set_links(self, bytes_per_s: float) -> None:
        """Give all nodes the same rate in both directions."""
        for node in self._seats:
            self.set_uplink(node, bytes_per_s)
            self.set_downlink(node, bytes_per_s)

    def slow(self, node: str, factor: float) -> None:
        """Give a node `factor` times the cores that it had at first, or those of this machine if it declares more."""
        usable = min(self._cores[node], float(len(os.sched_getaffinity(0))))
        self._groups.set_cores(node, usable * factor)

    def part(self, node: str) -> None:
        """Let nothing pass between a node and the others, without telling either."""
        perform(separation(self.number, self._seats[node], joined=False))

    def join(self, node: str) -> None:
        """Undo `part`."""
        perform(separation(self.number, self._seats[node], joined=True))

    def kill(self, node: str) -> None:
        """Kill every process of a node, and wait until it is gone."""
        self._groups.kill(node)

    def terminate(self, node: str) -> None:
        """Send SIGTERM to every process of a node, and do not wait."""
        self._groups.terminate(node)

    # Inside

    def _buffer_bytes(self, node: str) -> int:
        own = self.cluster.node(node)
        others_s = [_latency_s(other) for other in self.cluster.nodes if other is not own]
        round_trip_s = _latency_s(own) + max(others_s, default=0.0) if self.has_netem else 0.0
        return _BUFFER_PER_WINDOW * window_bytes(own.downlink, round_trip_s)

    @property
    def _is_late(self) -> bool:
        links = [link for node in self.cluster.nodes for link in (node.uplink, node.downlink)]
        return any(link is not None and link.latency_s > 0 for link in links)

    def _netem_works(self) -> bool:
        lines = ("qdisc replace dev lo root netem delay 1ms", "qdisc del dev lo root")
        try:
            perform(Batch(tool="tc", namespace=switch_namespace(self.number), lines=lines))
        except ClusterError:
            return False
        return True

    def _shapes(self) -> Iterator[Batch]:
        for seat in self._seats.values():
            node = self.cluster.node(seat.node)
            if node.uplink is not None:
                yield from self._shape_uplink(seat, node.uplink)
            if node.downlink is not None:
                yield self._shape_downlink(seat, node.downlink)

    def _shape_uplink(self, seat: NodeNamespace, link: Channel | None) -> Iterator[Batch]:
        lines = shape(DEVICE, link, with_netem=self.has_netem, least_burst_bytes=self._burst_bytes(seat.node, link))
        yield Batch(tool="tc", namespace=seat.namespace, lines=lines)
        lines = packets(DEVICE, self._burst_bytes(seat.node, link))
        yield Batch(tool="ip", namespace=seat.namespace, lines=lines)

    def _shape_downlink(self, seat: NodeNamespace, link: Channel | None) -> Batch:
        lines = shape(seat.port, link, with_netem=self.has_netem, least_burst_bytes=self._burst_bytes(seat.port, link))
        return Batch(tool="tc", namespace=switch_namespace(self.number), lines=lines)

    def _burst_bytes(self, place: str, link: Channel | None) -> int:
        """Return the size of the largest bucket that a device has had, this one among them."""
        here = MOST_BURST_BYTES if link is None else burst_bytes(link)
        self._bursts[place] = max(here, self._bursts.get(place, 0))
        return self._bursts[place]


@contextlib.contextmanager
def emulated(cluster: Cluster) -> Iterator[EmulatedCluster]:
    """Build a cluster, and remove it however the block, or this process, ends. What killed owners left goes first.

    Raises:
        ClusterError: this machine cannot do it.
    """
    check_machine()
    registry = Registry()
    with watchdog():
        number = registry.claim(this_process(), clear)
        try:
            box = EmulatedCluster(cluster, number, registry.folder(number))
            box.build()
            yield box
        finally:
            clear(number)
            registry.release(number, restore_machine)


def check_machine() -> None:
    """Refuse where clusters cannot be emulated.

    Raises:
        ClusterError: it says what is missing.
    """
    if not sys.platform.startswith("linux"):
        raise ClusterError(f"emulating a cluster needs Linux, and this is {sys.platform}")
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise ClusterError(
            f"emulating a cluster needs {' and '.join(missing)}, not found in PATH. Install iproute2 and util-linux."
        )
    if os.geteuid() != 0:
        raise ClusterError(
            f"emulating a cluster needs root, and this is user {os.geteuid()}: it makes network namespaces and "
            "control groups. Start nfold with sudo, or leave out the emulation."
        )


def _latency_s(node: Node) -> float:
    """There and back on a node's link."""
    return sum(link.latency_s for link in (node.uplink, node.downlink) if link is not None)


def _at_rate(link: Channel | None, bytes_per_s: float | None) -> Channel | None:
    if bytes_per_s is None:
        return link
    latency_s = link.latency_s if link is not None else 0.0
    return Channel(latency_s=latency_s, bandwidth_bytes_per_s=bytes_per_s, origin="declared")
