"""Control groups: a share of processor time and a memory limit for each node. Version 1 and version 2 of the kernel's.

    version 1   /sys/fs/cgroup/cpu/nfold-7/node-pi      and      /sys/fs/cgroup/memory/nfold-7/node-pi
    version 2   /sys/fs/cgroup/nfold-7/node-pi

A quota is processor time per period (CFS bandwidth control, the kernel's Documentation/scheduler/sched-bwc.rst). The
period is short: with the usual 100 ms, a step of 20 ms would never meet its quota.
"""

import contextlib
import os
import select
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nfold.core.cluster import Cluster, Node
from nfold.errors import ClusterError
from nfold.launch.emulation.controllers import enable_controllers
from nfold.machine.limits import read_or_nothing

PERIOD_US = 10_000
LEAST_QUOTA_US = 1000
"""The kernel grants no less in one period."""
MOST_PERIOD_US = 1_000_000
MOUNTS = Path("/proc/self/mounts")
_ROUNDS = 20
_ROUND_S = 0.5
CONTROLLERS = ("cpu", "memory")
_PREFIX = "node-"
"""The kernel's own files lie beside the nodes' groups; with this, a node may be called `tasks` or `cpu.max`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hierarchy:
    """Where this machine's control groups are."""

    version: Literal[1, 2]
    folders: tuple[Path, ...]
    """Version 1: of the controllers cpu and memory; version 2: the only one."""


def find_hierarchy(mounts: str, controllers: "dict[str, str] | None" = None) -> Hierarchy:
    """Find the control groups in a table of mounts.

    Args:
        mounts: the text of /proc/self/mounts.
        controllers: what `cgroup.controllers` says at each mount of version 2; read from there unless given.

    Raises:
        ClusterError: the controllers cpu and memory are not there.
    """
    version_1: dict[str, Path] = {}
    for line in mounts.splitlines():
        _, where, kind, options, *_ = line.split(" ")
        if kind == "cgroup":
            version_1.update({name: Path(where) for name in CONTROLLERS if name in options.split(",")})
        elif kind == "cgroup2":
            offered = (
                read_or_nothing(Path(where) / "cgroup.controllers")
                if controllers is None
                else controllers.get(where, "")
            )
            if set(CONTROLLERS) <= set(offered.split()):
                return Hierarchy(version=2, folders=(Path(where),))
    if set(version_1) == set(CONTROLLERS):
        return Hierarchy(version=1, folders=tuple(version_1[name] for name in CONTROLLERS))
    raise ClusterError(
        "emulating a cluster needs the control groups cpu and memory, and this system has not mounted them. "
        "In a container, start it with --privileged --cgroupns=host."
    )


def cpu_quota(cores: float) -> tuple[int, int]:
    """Return quota and period, in microseconds, for so many cores: 0.5 is half of one, 2.0 is two."""
    period_us = min(MOST_PERIOD_US, max(PERIOD_US, round(LEAST_QUOTA_US / cores)))
    return max(LEAST_QUOTA_US, round(cores * period_us)), period_us


def as_emulated(cluster: Cluster) -> Cluster:
    """Return a declared cluster as it behaves here: a node's share of cores is a quota."""
    return replace(cluster, nodes=tuple(map(_with_quota, cluster.nodes)), is_emulated=True)


def at_own_speed(cluster: Cluster) -> Cluster:
    """Return an emulated cluster with the speed that its nodes have, which is this machine's whatever was declared."""
    return replace(cluster, nodes=tuple(replace(node, speed=1.0) for node in cluster.nodes))


def with_quotas(cluster: Cluster) -> Cluster:
    """Return a declared cluster in which a part of a core is a quota of one, and as much slower when nobody rests."""
    nodes = (
        node if node.cores == int(node.cores) else replace(_with_quota(node), speed=node.speed * min(1.0, node.cores))
        for node in cluster.nodes
    )
    return replace(cluster, nodes=tuple(nodes))


def _with_quota(node: Node) -> Node:
    return replace(node, quota_period_s=cpu_quota(node.cores)[1] / 1e6)


def cpu_settings(version: Literal[1, 2], cores: float) -> list[tuple[str, str]]:
    """Return files of a group, and what to write into each, for so many cores.

    Where nodes want more than the machine has at a moment, they share it as their cores are to each other.
    """
    quota_us, period_us = cpu_quota(cores)
    if version == 2:
        return [("cpu.max", f"{quota_us} {period_us}"), ("cpu.weight", str(_weight(100, cores, 1, 10_000)))]
    weight = ("cpu.shares", str(_weight(1024, cores, 2, 262_144)))
    return [("cpu.cfs_period_us", str(period_us)), ("cpu.cfs_quota_us", str(quota_us)), weight]


def _weight(of_one_core: int, cores: float, least: int, most: int) -> int:
    return min(most, max(least, round(of_one_core * cores)))


def memory_settings(version: Literal[1, 2], node: Node) -> list[tuple[str, str]]:
    """Return files of a group, and what to write into each, for a node's memory; none where it has no limit."""
    if not node.limits_memory:
        return []
    return [("memory.max" if version == 2 else "memory.limit_in_bytes", str(node.memory_bytes))]


def swap_settings(version: Literal[1, 2], node: Node) -> list[tuple[str, str]]:
    """Return files of a group, and what to write into each, so that a node has no more memory by swapping.

    Version 1 limits memory and swap together, which it takes only after the limit of memory.
    """
    if not node.limits_memory:
        return []
    return [("memory.swap.max", "0") if version == 2 else ("memory.memsw.limit_in_bytes", str(node.memory_bytes))]


class Groups:
    """The control groups of one emulation."""

    def __init__(self, hierarchy: Hierarchy, name: str, memo: Path) -> None:
        """Args:
        hierarchy: of this machine.
        name: of the emulation.
        memo: file that says what emulations have changed of the root; see `controllers.py`.
        """
        self._hierarchy, self._memo = hierarchy, memo
        self._parents = [folder / name for folder in hierarchy.folders]

    def create(self, nodes: Iterable[Node]) -> None:
        """Make a group for every node, with its limit of memory; `set_cores` limits its processor time.

        Raises:
            ClusterError: the kernel refuses.
        """
        try:
            if self._hierarchy.version == 2:
                enable_controllers(self._hierarchy.folders[0], CONTROLLERS, self._memo)
            for parent in self._parents:
                parent.mkdir()
            if self._hierarchy.version == 2:
                enable_controllers(self._parents[0], CONTROLLERS)
            for node in nodes:
                for folder in self._folders(node.name):
                    folder.mkdir()
                self._limit_memory(self._folders(node.name)[-1], node)
        except OSError as error:
            raise ClusterError(
                f"cannot make a control group: {error.filename}: {error.strerror}. "
                "In a container, start it with --privileged --cgroupns=host."
            ) from error

    def set_cores(self, node: str, cores: float) -> None:
        """Let a node use so many cores from now on; 0.5 is half of one.

        Raises:
            ClusterError: the kernel does not take it.
        """
        try:
            self._write(self._folders(node)[0], cpu_settings(self._hierarchy.version, cores))
        except OSError as error:
            raise ClusterError(
                f"cannot give {node} {cores:g} cores: {error.filename}: {error.strerror}. A container may have fewer."
            ) from error

    def process_lists(self, node: str) -> list[Path]:
        """Return the files through which a process enters a node: it writes its number to each."""
        return [folder / "cgroup.procs" for folder in self._folders(node)]

    def processes(self, node: str) -> list[int]:
        """Return the numbers of a node's processes; none where the node is not there."""
        return sorted(
            {int(pid) for processes in self.process_lists(node) for pid in read_or_nothing(processes).split()}
        )

    def kill(self, node: str) -> None:
        """Kill every process of a node and wait until it is gone.

        Raises:
            ClusterError: some will not go.
        """
        for _ in range(_ROUNDS):  # a process may start another one while it is being killed
            if not (pids := self.processes(node)):
                return
            with self._held(node) as held:
                _kill(held)
        raise ClusterError(f"processes of node {node} cannot be killed: pid {', '.join(map(str, pids))}")

    def terminate(self, node: str) -> None:
        """Send SIGTERM to every process of a node, and do not wait."""
        with self._held(node) as held:
            _send(signal.SIGTERM, held)

    def remove(self) -> None:
        """Kill what runs in the groups and remove them. Safe to call for groups that are half made or gone.

        Raises:
            ClusterError: some processes will not go.
        """
        for name in sorted({child.name for parent in self._parents for child in _children(parent)}):
            self.kill(name.removeprefix(_PREFIX))
        for parent in self._parents:
            for folder in (*_children(parent), parent):
                with contextlib.suppress(FileNotFoundError):
                    folder.rmdir()

    @contextlib.contextmanager
    def _held(self, node: str) -> Iterator[list[int]]:
        """Hold a node's processes by descriptors, which never come to mean another process."""
        held: dict[int, int] = {}
        try:
            for pid in self.processes(node):
                with contextlib.suppress(ProcessLookupError):
                    held[pid] = os.pidfd_open(pid)
            there = set(self.processes(node))  # a number may have gone to a stranger before it was held
            yield [descriptor for pid, descriptor in held.items() if pid in there]
        finally:
            for descriptor in held.values():
                os.close(descriptor)

    def _folders(self, node: str) -> list[Path]:
        """Return a node's groups: of cpu first, of memory last."""
        return [parent / f"{_PREFIX}{node}" for parent in self._parents]

    def _limit_memory(self, folder: Path, node: Node) -> None:
        self._write(folder, memory_settings(self._hierarchy.version, node))
        swap = swap_settings(self._hierarchy.version, node)
        self._write(folder, [each for each in swap if (folder / each[0]).exists()])  # some kernels count no swap

    @staticmethod
    def _write(folder: Path, settings: Sequence[tuple[str, str]]) -> None:
        for file, value in settings:
            (folder / file).write_text(value, encoding="utf-8")


def _children(folder: Path) -> list[Path]:
    try:
        return [child for child in folder.iterdir() if child.is_dir()]
    except FileNotFoundError:
        return []


def _send(which: signal.Signals, descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, which)


def _kill(descriptors: Sequence[int]) -> None:
    """Kill processes and wait until they have ended."""
    _send(signal.SIGKILL, descriptors)
    for descriptor in descriptors:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(_ROUND_S * 1000)
