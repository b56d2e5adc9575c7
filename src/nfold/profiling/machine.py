"""Describes this machine as a Node: cores and memory that it may really use, and how crowding slows a core down."""

import math
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from nfold.core.cluster import Channel, Device, Node
from nfold.profiling.measure import Clock

_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60
_TASK_S = 0.003
_MOST_CORES = 16
_BUDGET_S = 0.4


def this_node(local: Channel, *, clock: Clock = time.perf_counter) -> Node:
    """Describe this machine. Less than 0.5 s, for measuring the crowding.

    Args:
        local: between two ranks here, measured or declared elsewhere.
        clock: gives seconds.
    """
    share, memory_bytes = available_cores(), available_memory()
    return Node(
        name=node_name(),
        cores=share.cores,
        quota_period_s=share.period_s,
        memory_bytes=memory_bytes,
        devices=_devices(memory_bytes),
        local=local,
        crowding=measure_crowding(max(1, math.floor(share.cores)), clock=clock),
    )


def node_name() -> str:
    """Return the host's own name, without asking any name server."""
    return socket.gethostname() or "localhost"


class Share(NamedTuple):
    """Of a machine's cores."""

    cores: float
    period_s: float
    """It is a quota of processor time, granted anew so often; 0: whole cores."""


def available_cores(cgroup: Path = _CGROUP, own: Path = _OWN_GROUPS) -> Share:
    """Return how many cores the process may use: affinity, and the least share of time of its cgroups if less.

    Args:
        cgroup: where control groups are mounted.
        own: lists the groups of this process.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [_quota_v2(folder) for folder in _groups(cgroup, own, "")]
    quotas += [_quota_v1(folder) for folder in _groups(cgroup / "cpu", own, "cpu")]
    return min([Share(float(allowed), 0.0), *(quota for quota in quotas if quota)])


def available_memory(cgroup: Path = _CGROUP, own: Path = _OWN_GROUPS) -> int:
    """Return how many bytes the process may use: the machine's, or the least limit of its cgroups if that is less.

    Args:
        cgroup: where control groups are mounted.
        own: lists the groups of this process.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [_number(folder / "memory.max") for folder in _groups(cgroup, own, "")]
    limits += [_number(folder / "memory.limit_in_bytes") for folder in _groups(cgroup / "memory", own, "memory")]
    return min([total, *(limit for limit in limits if limit is not None and limit < _UNLIMITED)])


def measure_crowding(cores: int, *, clock: Clock = time.perf_counter) -> tuple[float, ...]:
    """Return how much longer one core's work takes while 1, 2, .. cores are busy; never less than with fewer.

    A core is kept busy by a thread that multiplies matrices which fit its own cache.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        work = _task(clock)
        counts = range(1, min(cores, _MOST_CORES) + 1)
        rounds = max(2, int(_BUDGET_S / (2 * _TASK_S * len(counts))))
        # The lower quartile: what other programs do meanwhile only ever adds time.
        seconds = [
            statistics.quantiles(_busy(work, count, min(rounds, 20), clock), n=4, method="inclusive")[0]
            for count in counts
        ]
    finally:
        torch.set_num_threads(threads)
    factors = [1.0]
    for found in seconds[1:]:
        factors.append(max(factors[-1], found / seconds[0]))
    return tuple(round(factor, 4) for factor in factors)


def _groups(mount: Path, own: Path, controller: str) -> list[Path]:
    """Return the folders of this process's group and of those above it, up to the mount.

    Args:
        mount: of the controller (version 1), or of all of them (version 2).
        own: lines of `number:controllers:path`; in a container the path may not exist below the mount.
        controller: its name; version 2 has none.
    """
    for line in _read(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own_folder = mount / path.lstrip("/")
            return [own_folder, *own_folder.parents[: len(Path(path).parts) - 1]]
    return [mount]


def _quota_v2(cgroup: Path) -> Share | None:
    text = _read(cgroup / "cpu.max").split()
    return _share(int(text[0]), int(text[1])) if len(text) == 2 and text[0] != "max" else None


def _quota_v1(cgroup: Path) -> Share | None:
    quota, period = _number(cgroup / "cpu.cfs_quota_us"), _number(cgroup / "cpu.cfs_period_us")
    return _share(quota, period) if quota and period and quota > 0 else None


def _share(quota_us: int, period_us: int) -> Share:
    return Share(cores=quota_us / period_us, period_s=period_us / 1e6)


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _devices(memory_bytes: int) -> tuple[Device, ...]:
    devices = [Device(kind="cpu", count=1, memory_bytes=memory_bytes)]
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        for name in dict.fromkeys(names):
            memory = torch.cuda.get_device_properties(names.index(name)).total_memory
            devices.append(Device(kind=name, count=names.count(name), memory_bytes=int(memory)))
    return tuple(devices)


def _task(clock: Clock) -> Callable[[], None]:
    """Return about 3 ms of one core's work."""
    matrix = torch.ones(256, 256)
    matrix @ matrix
    begin_s = clock()
    for _ in range(4):
        matrix @ matrix
    repeats = max(1, round(_TASK_S / max((clock() - begin_s) / 4, 1e-6)))

    def work() -> None:
        for _ in range(repeats):
            torch.mm(matrix, matrix)

    return work


def _busy(work: Callable[[], None], count: int, rounds: int, clock: Clock) -> Sequence[float]:
    """Let `count` threads work at once and return the seconds of every task of each."""
    seconds: list[float] = []
    start = threading.Barrier(count)

    def run() -> None:
        torch.set_num_threads(1)
        start.wait()
        for _ in range(rounds):
            begin_s = clock()
            work()
            seconds.append(clock() - begin_s)

    threads = [threading.Thread(target=run, name=f"nfold-crowd-{index}") for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds
