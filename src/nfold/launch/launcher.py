"""The contract of everything that starts members of a job: processes or threads that become its ranks."""

import signal
from typing import Protocol

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, what schedulers send before they kill, and a terminal that is closed: all end what was started in order."""


class Launcher(Protocol):
    """Starts members, at any time, says how they ended, and ends them."""

    def start(self, member: int, host: str, port: int, token: str) -> None:
        """Start a member that will dial the coordinator at host:port and show the token; return at once."""
        ...

    def ended(self, member: int, timeout_s: float) -> str | None:
        """Return how a member ended (`was killed by signal 9 (SIGKILL)`), or None while it runs.

        Waits up to `timeout_s` for it to end.
        """
        ...

    def comes_again(self, member: int) -> bool:
        """Whether the place of a member that is lost would be offered again, if it were released now."""
        ...

    def release(self, member: int, *, is_lost: bool = False, why: str = "") -> None:
        """Let go of a member that has left the job; nothing of it is left afterwards. Safe to call again.

        Args:
            member: its number.
            is_lost: whether it was lost, so that another one may be offered the place that it had.
            why: it was not let in, for this reason, which its host is told.
        """
        ...

    def last_lines(self) -> list[str]:
        """Return the last lines that members have printed, whichever it was; none after `stop`."""
        ...

    def stop(self, grace_s: float) -> None:
        """End every member: wait up to `grace_s` for all that are leaving, then kill. Safe to call again."""
        ...
