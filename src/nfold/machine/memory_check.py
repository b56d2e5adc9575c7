"""Refuses processes that memory cannot hold, before any of them is started: later the kernel would kill some."""

from collections.abc import Sequence
from pathlib import Path

from nfold.core.cluster import Cluster
from nfold.errors import ClusterError
from nfold.machine.limits import unused_memory

_MEMINFO = Path("/proc/meminfo")


def check_machine_memory(what: str, count: int, bytes_per_process: int) -> None:
    """Refuse more processes than this machine, or the container that this runs in, has free memory for.

    Where the system does not tell, none are refused.

    Args:
        what: they are: `4 ranks`.
        count: how many.
        bytes_per_process: what each will need at least.

    Raises:
        ClusterError: with the numbers.
    """
    if not _MEMINFO.exists():  # not Linux
        return
    free, left = available_bytes(_MEMINFO.read_text(encoding="utf-8")), unused_memory()
    needed, free = count * bytes_per_process, free if left is None else min(free, left)
    if needed > free:
        raise ClusterError(
            f"{what} need about {_gib(needed)} to start ({bytes_per_process / 1e6:.0f} MB each), and this machine has "
            f"{_gib(free)} free. At most {free // bytes_per_process} would fit: start fewer, or free memory."
        )


def check_cluster_memory(cluster: Cluster, bytes_per_process: int, processes: Sequence[str]) -> None:
    """Refuse more processes than this machine, or a node that it emulates, has memory for.

    Args:
        cluster: that will be emulated.
        bytes_per_process: what each process will need at least.
        processes: node of each process.

    Raises:
        ClusterError: with the numbers.
    """
    what = f"{len(processes)} processes on {len(cluster.nodes)} nodes"
    check_machine_memory(what, len(processes), bytes_per_process)
    for node in cluster.nodes:
        count = processes.count(node.name)
        if node.limits_memory and count * bytes_per_process > node.memory_bytes:
            raise ClusterError(
                f"node {node.name!r} has {node.memory_bytes / 1e6:.0f} MB of memory, and {count} process"
                f"{'es on it need' if count > 1 else ' on it needs'} about "
                f"{count * bytes_per_process / 1e6:.0f} MB to start. "
                "Give it more memory, or start fewer."
            )


def available_bytes(meminfo: str) -> int:
    """Return how many bytes programs can have without swapping, from the text of /proc/meminfo: its MemAvailable."""
    fields = dict(line.split(":") for line in meminfo.splitlines())
    return int(fields["MemAvailable"].split()[0]) << 10


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
