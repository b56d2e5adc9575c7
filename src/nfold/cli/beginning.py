"""When a command began: with its process, before Python itself was loaded."""

import os
import time
from pathlib import Path

_STARTED = 19
"""Of the fields in /proc/self/stat behind the program's name: when it started, in ticks since the machine did."""


def begun_s(*, with_process: bool) -> float:
    """Return when the command began, by time.perf_counter().

    Args:
        with_process: whether this process was started for it; else it begins now.
    """
    now_s = time.perf_counter()
    if not with_process:
        return now_s
    ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[_STARTED])
    return now_s - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
