"""Removes an emulation at once when its owner was killed: a small process beside the owner that waits for its end.

owner ── starts ──> watchdog
owner ends in order: writes a byte, and the watchdog goes
owner is killed:     the pipe ends without one, and the watchdog removes what dead owners have left
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from nfold.launch.emulation.clearing import clear, restore_machine
from nfold.launch.emulation.owners import Registry
from nfold.launch.launcher import STOP_SIGNALS

_IN_ORDER = b"."


@contextmanager
def watchdog() -> Iterator[None]:
    """Have what this process emulates removed if it is killed in the block.

    Raises:
        OSError: the watchdog cannot be started.
    """
    command = [sys.executable, "-P", "-m", "nfold.launch.emulation.watchdog", str(os.getpid())]
    silent = subprocess.DEVNULL
    # A session of its own: a Ctrl-C in the terminal is for its owner.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=silent, stderr=silent, start_new_session=True
    ) as process:
        try:
            yield
        finally:
            process.communicate(_IN_ORDER)


def main() -> None:
    """Wait for the owner's end and clean up after it if it could not."""
    for which in STOP_SIGNALS:
        signal.signal(which, signal.SIG_IGN)
    owner = os.pidfd_open(os.getppid())
    was_there = os.getppid() == int(sys.argv[1])
    if os.read(sys.stdin.fileno(), 1) == _IN_ORDER:
        return
    if was_there:  # a process closes its files some moments before it counts as dead
        poll = select.poll()
        poll.register(owner, select.POLLIN)
        poll.poll()
    Registry().sweep(clear, restore_machine)


if __name__ == "__main__":
    main()
