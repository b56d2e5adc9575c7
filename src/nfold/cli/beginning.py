"""When a command began: with its process, before Python itself was loaded."""

import os
import time

from nfold.machine.processes import start_ticks


def begun_s(*, with_process: bool) -> float:
    """Return when the command began, by time.perf_counter().

    Args:
        with_process: whether this process was started for it; else it begins now.
    """
    now_s = time.perf_counter()
    if not with_process:
        return now_s
    ticks = start_ticks(os.getpid())
    assert ticks is not None, "this process runs"
    return now_s - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
