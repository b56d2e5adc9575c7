"""What the process holds in memory, as the system counts it."""

import contextlib
import resource
from pathlib import Path

from nfold.machine.heap import give_back

_CLEAR_REFS = Path("/proc/self/clear_refs")
_FORGET_PEAK = "5"
_STATUS = "/proc/{}/status"


def settle() -> None:
    """Give memory that is no longer used back to the system, and let the peak begin anew."""
    give_back()
    forget_peak()


def forget_peak() -> None:
    """Let the peak begin anew. Where the system cannot do that (no /proc), it stays that of the whole process."""
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text(_FORGET_PEAK, encoding="utf-8")


def peak_bytes(process: int | None = None) -> int:
    """Return the most bytes that a process has held since it last forgot its peak; 0 of another one that is gone.

    It is VmHWM of proc_pid_status(5): getrusage would begin with what the process held that started this one.

    Args:
        process: its number; None: this one.
    """
    with contextlib.suppress(OSError):
        for line in Path(_STATUS.format(process or "self")).read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0 if process else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
