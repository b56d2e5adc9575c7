"""Which process is meant: its number may be given to another one, its number with its start may not."""

import os
import time
from pathlib import Path

_START_FIELD = 19
"""Of /proc/PID/stat, counted from behind the command's name: start time in ticks since boot."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (proc_pid_stat(5), field 22); None where none runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] == b"Z" else int(fields[_START_FIELD])


def started(pid: int) -> str | None:
    """Return what no other process of this number has, on this machine, whenever it was booted; None: there is none."""
    ticks = start_ticks(pid)
    return None if ticks is None else f"{boot_id()}:{ticks}"


def started_here() -> str:
    """Return the same of this process."""
    mine = started(os.getpid())
    assert mine is not None, "this process runs"
    return mine


def age_s() -> float:
    """Return for how many seconds this process has run."""
    ticks = start_ticks(os.getpid())
    assert ticks is not None, "this process runs"
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def boot_id() -> str:
    """Return what no other machine has, nor this one once it is booted again; empty: it is hidden."""
    try:
        return _BOOT.read_text(encoding="utf-8").strip()
    except OSError:  # a container may hide it
        return ""
