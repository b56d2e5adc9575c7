"""Turns what the kernel says of a process and its node into a sample of what they did in between. Pure.

Every text may be empty, where a machine does not tell: what it would have counted is 0 then.

    /proc/self/task/N/stat    processor time of one thread
    /proc/stat                busy and stolen processor time of the whole node
    cpu.stat of the cgroup    time without a processor because the quota was used up, version 1 or 2
    /proc/net/dev             bytes by interface, of the process's own network namespace
    /proc/self/status, io     resident memory, bytes read from and written to disks

The formats are those of proc(5) and of the kernel's Documentation/admin-guide/cgroup-v2.rst.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from nfold.core.trace import SystemSample

CGROUPS = "/sys/fs/cgroup"
_BUSY = (0, 1, 2, 5, 6)
"""Of the numbers in a line of /proc/stat: user, nice, system, irq, softirq. What guests took is in user."""
_STEAL = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelCounters:
    """Counters at one moment. All but the memory only grow."""

    at_s: float
    process_cpu_s: float
    """Of this process and its loaders."""
    communication_cpu_s: Mapping[int, float]
    """Of the threads that move bytes, by their number: threads come and go."""
    node_busy_s: float
    """Processor seconds of all programs, over all cores."""
    node_steal_s: float
    """Processor seconds that a hypervisor took, over all cores."""
    throttled_s: float
    """In which threads were ready while the quota was used up."""
    rss_bytes: int
    sent_bytes: int
    received_bytes: int
    disk_bytes: int


def sample_between(before: KernelCounters, after: KernelCounters, rank: int, node: str, began_s: float) -> SystemSample:
    """Return what happened between two readings.

    Args:
        before: the earlier one.
        after: the later one.
        rank: whose process it is.
        node: where it runs.
        began_s: when the rank began to train, on the clock of the readings.
    """
    process_s = after.process_cpu_s - before.process_cpu_s
    communication_s = sum(
        seconds - before.communication_cpu_s.get(thread, 0.0) for thread, seconds in after.communication_cpu_s.items()
    )
    communication_s = min(process_s, max(0.0, communication_s))
    return SystemSample(
        rank=rank,
        node=node,
        at_s=after.at_s - began_s,
        span_s=after.at_s - before.at_s,
        compute_cpu_s=process_s - communication_s,
        communication_cpu_s=communication_s,
        throttled_s=after.throttled_s - before.throttled_s,
        steal_s=after.node_steal_s - before.node_steal_s,
        neighbours_cpu_s=max(0.0, after.node_busy_s - before.node_busy_s - process_s),
        rss_bytes=after.rss_bytes,
        sent_bytes=after.sent_bytes - before.sent_bytes,
        received_bytes=after.received_bytes - before.received_bytes,
        disk_bytes=after.disk_bytes - before.disk_bytes,
    )


def thread_cpu_s(stat: str, ticks_per_s: int) -> float:
    """Return the processor seconds of a thread, user and system, from its `stat`; 0.0 where it is gone.

    Its name, in brackets, may hold anything.
    """
    numbers = stat.rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / ticks_per_s if numbers else 0.0


def node_cpu_s(stat: str, ticks_per_s: int) -> tuple[float, float]:
    """Return the busy and the stolen processor seconds of a node, all cores together, from /proc/stat."""
    first = stat.partition("\n")[0].split()
    if len(first) <= _STEAL + 1 or first[0] != "cpu":
        return 0.0, 0.0
    ticks = [int(number) for number in first[1:]]
    return sum(ticks[index] for index in _BUSY) / ticks_per_s, ticks[_STEAL] / ticks_per_s


def throttling_files(groups: str) -> list[str]:
    """Return where a process's throttled time may stand, best first.

    Args:
        groups: /proc/self/cgroup, lines of `number:controllers:path`. In a container the path may not exist below the
            mount, which is then the group itself.
    """
    files = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        own = path.rstrip("/")
        if "cpu" in controllers.split(","):
            files += [f"{CGROUPS}/cpu{own}/cpu.stat", f"{CGROUPS}/cpu/cpu.stat"]
        elif not controllers:
            files += [f"{CGROUPS}{own}/cpu.stat", f"{CGROUPS}/cpu.stat"]
    return list(dict.fromkeys(files))


def throttled_s(cpu_stat: str) -> float:
    """Return the seconds in which a cgroup's threads were ready while its quota was used up, from its `cpu.stat`."""
    counters = _fields(cpu_stat)
    if "throttled_usec" in counters:
        return counters["throttled_usec"] / 1e6
    return counters.get("throttled_time", 0) / 1e9


def interface_bytes(net_dev: str, interface: str) -> tuple[int, int]:
    """Return the bytes that an interface has sent and received, from /proc/net/dev; zeros if it is not there."""
    for line in net_dev.splitlines():
        name, colon, counts = line.partition(":")
        if colon and name.strip() == interface:
            numbers = counts.split()
            return int(numbers[8]), int(numbers[0])
    return 0, 0


def resident_bytes(status: str) -> int:
    """Return the bytes that are resident in a process, from its `status`."""
    return _fields(status).get("VmRSS", 0) * 1024


def shared_resident_bytes(status: str) -> int:
    """Return how many of those are of files, as libraries are, and of shared memory: others may hold them too."""
    fields = _fields(status)
    return (fields.get("RssFile", 0) + fields.get("RssShmem", 0)) * 1024


def disk_bytes(io: str) -> int:
    """Return the bytes that a process caused to be read from and written to disks, from its `io`."""
    counters = _fields(io)
    return counters.get("read_bytes", 0) + counters.get("write_bytes", 0)


def _fields(text: str) -> dict[str, int]:
    """Read lines of a name, perhaps a colon, and a whole number."""
    words = (line.replace(":", " ").split() for line in text.splitlines())
    return {line[0]: int(line[1]) for line in words if len(line) >= 2 and line[1].isdigit()}
