"""What this process may use of its machine: cores and memory, also in a container that limits them."""

import os
from pathlib import Path
from typing import NamedTuple

_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60


class CoreShare(NamedTuple):
    """What a process may use of a machine's cores."""

    cores: float
    """0.5 is half of the time of one."""
    period_s: float
    """It is a quota of processor time, granted anew so often; 0: whole cores."""


def available_cores(cgroup: Path = _CGROUP, own: Path = _OWN_GROUPS) -> CoreShare:
    """Return how many cores the process may use: affinity, and the least share of time of its cgroups if less.

    Args:
        cgroup: where control groups are mounted.
        own: lists the groups of this process.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [_quota_v2(folder) for folder in _groups(cgroup, own, "")]
    quotas += [_quota_v1(folder) for folder in _groups(cgroup / "cpu", own, "cpu")]
    return min([CoreShare(float(allowed), 0.0), *(quota for quota in quotas if quota)])


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


def unused_memory(cgroup: Path = _CGROUP, own: Path = _OWN_GROUPS) -> int | None:
    """Return how many bytes the cgroups of the process leave it; None: they limit nothing.

    Files that a group has read count as used, and are given up first.

    Args:
        cgroup: where control groups are mounted.
        own: lists the groups of this process.
    """
    left = [_left(folder, "memory.max", "memory.current", "inactive_file") for folder in _groups(cgroup, own, "")]
    left += [
        _left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        for folder in _groups(cgroup / "memory", own, "memory")
    ]
    return min((each for each in left if each is not None), default=None)


def _left(group: Path, limit: str, used: str, given_up: str) -> int | None:
    most, now = _number(group / limit), _number(group / used)
    if most is None or now is None or most >= _UNLIMITED:
        return None
    files = [
        line.split()[1] for line in read_or_nothing(group / "memory.stat").splitlines() if line.split()[0] == given_up
    ]
    return max(0, most - now + sum(map(int, files)))


def _groups(mount: Path, own: Path, controller: str) -> list[Path]:
    """Return the folders of this process's group and of those above it, up to the mount.

    Args:
        mount: of the controller (version 1), or of all of them (version 2).
        own: lines of `number:controllers:path`; in a container the path may not exist below the mount.
        controller: its name; version 2 has none.
    """
    for line in read_or_nothing(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own_folder = mount / path.lstrip("/")
            return [own_folder, *own_folder.parents[: len(Path(path).parts) - 1]]
    return [mount]


def _quota_v2(cgroup: Path) -> CoreShare | None:
    text = read_or_nothing(cgroup / "cpu.max").split()
    return _share(int(text[0]), int(text[1])) if len(text) == 2 and text[0] != "max" else None


def _quota_v1(cgroup: Path) -> CoreShare | None:
    quota, period = _number(cgroup / "cpu.cfs_quota_us"), _number(cgroup / "cpu.cfs_period_us")
    return _share(quota, period) if quota and period and quota > 0 else None


def _share(quota_us: int, period_us: int) -> CoreShare:
    return CoreShare(cores=quota_us / period_us, period_s=period_us / 1e6)


def _number(path: Path) -> int | None:
    text = read_or_nothing(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def read_or_nothing(path: Path) -> str:
    """Return the text of a file of the kernel's; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
