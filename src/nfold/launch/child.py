"""A process that this one has started or adopted: how it ended, and that nothing of its group stays behind."""

import contextlib
import os
import select
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


class Child:
    """One child. Threads may ask side by side how it ended."""

    def __init__(self, pid: int) -> None:
        """Args:
        pid: its number.
        """
        self.pid = pid
        self._how: str | None = None
        self._reaping = threading.Lock()

    def ended(self, timeout_s: float | None) -> str | None:
        """Return how it ended (`exited with code 1`), or None while it runs; `ended` where nobody can tell.

        Args:
            timeout_s: how long to wait for its end; None: as long as it takes.
        """
        if self._how is not None:
            return self._how
        try:
            code = exit_code(self.pid, timeout_s)
        except (ProcessLookupError, ChildProcessError):
            return self.reap()  # another thread reaps it, or has done so
        return None if code is None else describe_exit(code)

    def kill(self) -> None:
        """Kill it with all of its group, which may outlive it; nothing happens once it is reaped."""
        if self._how is not None:
            return
        for kill in (os.killpg, os.kill):  # the second one, too: of who was just forked there is no group yet
            with contextlib.suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)

    def reap(self) -> str:
        """Wait for its end, and let go of its number; return how it ended."""
        with self._reaping:
            if self._how is None:
                self._how = self._reaped()
        return self._how

    def end(self, grace_s: float | None) -> None:
        """Wait for its end, at most `grace_s`, then kill it; None: wait as long as it takes. It is gone afterwards."""
        self.ended(grace_s)
        self.kill()
        self.reap()

    def _reaped(self) -> str:
        try:
            return describe_exit(os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]))
        except ChildProcessError:
            return "ended"  # the user's program ignores SIGCHLD, so that the kernel has reaped it


class OwnChild(Child):
    """A child that subprocess has started, and would wait for."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        """Args:
        process: that was started.
        """
        super().__init__(process.pid)
        self._process = process

    def _reaped(self) -> str:
        return describe_exit(self._process.wait())


def describe_exit(code: int) -> str:
    """Return an exit code of subprocess in words: `exited with code 1`, `was killed by signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"


def exit_code(pid: int, timeout_s: float | None) -> int | None:
    """Return how a child ended, as subprocess counts, or None while it runs; None as timeout: wait for its end.

    The child is not reaped: as long as it is a zombie, no other process can have its number, so its group, which may
    outlive it, can be killed without hitting a stranger.

    Raises:
        ProcessLookupError, ChildProcessError: somebody has reaped it.
    """
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(None if timeout_s is None else timeout_s * 1000)
    finally:
        os.close(descriptor)
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
