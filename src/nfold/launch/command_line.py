"""What `ps` and /proc/PID/cmdline show of a process that was forked: its own command instead of the copied one."""

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOM = " " * 2000
"""An argument that makes the command line of a process long enough for those of its copies."""
_START_FIELD = 45
"""Of /proc/PID/stat, counted from behind the command's name: where the arguments begin; the next is their end."""


def show_command(words: Sequence[str]) -> None:
    """Let the command line of this process be another one; what is longer than it was is cut.

    The kernel reads it where Python was handed it, in the memory of the process (proc_pid_cmdline(5)).
    """
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = (int(field) for field in fields[_START_FIELD : _START_FIELD + 2])
    text = b"\0".join(map(os.fsencode, words))[: max(0, end - start - 1)]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
    sys.orig_argv[:] = words
