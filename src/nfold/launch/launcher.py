"""The contract of everything that starts ranks."""

import signal
from typing import Protocol

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, what schedulers send before they kill, and a terminal that is closed: all end what was started in order."""


class Launcher(Protocol):
    """Starts ranks, says how they ended, and ends them."""

    def start(self, rank: int, host: str, port: int, token: str) -> None:
        """Start a rank that will dial the coordinator at host:port and show the token."""
        ...

    def ended(self, rank: int, timeout_s: float) -> str | None:
        """Return how a rank ended (`was killed by signal 9 (SIGKILL)`), or None while it runs.

        Waits up to `timeout_s` for it to end.
        """
        ...

    def last_lines(self) -> list[str]:
        """Return the last lines that ranks have printed, whichever it was; none after `stop`."""
        ...

    def stop(self, grace_s: float) -> None:
        """End every rank: wait for those that are leaving, then kill. Safe to call again."""
        ...
