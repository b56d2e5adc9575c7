"""Reads the kernel's counters about once a second, in a thread of a rank's process, while the rank trains."""

import contextlib
import fcntl
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from nfold.core.trace import SystemSample
from nfold.machine.kernel_counters import (
    KernelCounters,
    disk_bytes,
    interface_bytes,
    node_cpu_s,
    resident_bytes,
    sample_between,
    shared_resident_bytes,
    thread_cpu_s,
    throttled_s,
    throttling_files,
)

PERIOD_S = 1.0
COMMUNICATION_THREADS = ("nfold-io", "nfold-read-", "nfold-write-", "nfold-late-", "nfold-memory-")
"""How the threads of a transport are named."""
LOOPBACK = "lo"
_TASKS = Path("/proc/self/task")
_GET_ADDRESS = 0x8915
"""Linux: SIOCGIFADDR."""


class SystemSampler:
    """Collects samples from `start` to `stop`, in a thread of its own; each is of the time since the one before.

    Args:
        rank: whose process it is.
        node: where it runs.
        read: returns the counters of now.
        period_s: between two samples.
    """

    def __init__(self, rank: int, node: str, read: Callable[[], KernelCounters], *, period_s: float = PERIOD_S) -> None:
        self._rank, self._node, self._read, self._period_s = rank, node, read, period_s
        self._samples: deque[SystemSample] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nfold-sampler", daemon=True)
        self._before: KernelCounters | None = None
        self._began_s = 0.0

    def start(self) -> None:
        """Begin to sample: the rank begins to train now."""
        self._before = self._read()
        self._began_s = self._before.at_s
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample, so that a short run has one too, and end the thread."""
        if self._stopping.is_set() or not self._thread.is_alive():
            return
        self._stopping.set()
        self._thread.join()
        self._sample()

    def take(self) -> list[SystemSample]:
        """Return the samples that were not taken yet."""
        return [self._samples.popleft() for _ in range(len(self._samples))]

    def _run(self) -> None:
        while not self._stopping.wait(self._period_s):
            self._sample()

    def _sample(self) -> None:
        before, now = self._before, self._read()
        if before is not None:
            self._samples.append(sample_between(before, now, self._rank, self._node, self._began_s))
        self._before = now


class Kernel:
    """Reads the counters of this process, its loaders and its node."""

    def __init__(
        self, address: str, clock: Callable[[], float], loaders: Callable[[], tuple[int, ...]] = tuple
    ) -> None:
        """Find out once what stays the same.

        Args:
            address: by which the other ranks reach this one; empty where ranks are threads.
            clock: of the readings.
            loaders: returns the processes that read for this rank, whose work is its own.
        """
        self._clock, self._loaders = clock, loaders
        self._interface = interface_of(address)
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._throttling = [path for path in throttling_files(_text("/proc/self/cgroup")) if "throttled" in _text(path)]

    def read(self) -> KernelCounters:
        """Return the counters of now."""
        busy_s, steal_s = node_cpu_s(_text("/proc/stat"), self._ticks_per_s)
        sent, received = interface_bytes(_text("/proc/self/net/dev"), self._interface)
        own = ["/proc/self", *(f"/proc/{process}" for process in self._loaders())]
        loaders_s = [thread_cpu_s(_text(f"{each}/stat"), self._ticks_per_s) for each in own[1:]]
        return KernelCounters(
            at_s=self._clock(),
            process_cpu_s=time.process_time() + sum(loaders_s),
            communication_cpu_s=self._communication_cpu_s(),
            node_busy_s=busy_s,
            node_steal_s=steal_s,
            throttled_s=throttled_s(_text(self._throttling[0])) if self._throttling else 0.0,
            rss_bytes=sum(resident_bytes(_text(f"{each}/status")) for each in own),
            sent_bytes=sent,
            received_bytes=received,
            disk_bytes=sum(disk_bytes(_text(f"{each}/io")) for each in own),
        )

    def _communication_cpu_s(self) -> dict[int, float]:
        threads = [thread for thread in threading.enumerate() if thread.name.startswith(COMMUNICATION_THREADS)]
        numbers = {thread.native_id for thread in threads if thread.native_id is not None}
        return {number: thread_cpu_s(_text(f"{_TASKS}/{number}/stat"), self._ticks_per_s) for number in numbers}


def shared_bytes_of_this_process() -> int:
    """Return how many of this process's resident bytes other processes may hold too."""
    return shared_resident_bytes(_text("/proc/self/status"))


def interface_of(address: str) -> str:
    """Return the network interface that has an IPv4 address, the loopback for none; empty if no interface has it."""
    if not address or address.startswith("127."):
        return LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # this one has no IPv4 address
                answer = fcntl.ioctl(asking, _GET_ADDRESS, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
