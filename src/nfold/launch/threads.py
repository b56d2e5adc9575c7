"""Starts ranks as threads of this process: for debugging and tests, where one debugger sees all of them."""

import threading
import time
from collections.abc import Callable

Body = Callable[[int], int]
"""Runs one rank and returns its exit code."""


class ThreadLauncher:
    """One thread per rank. A thread cannot be killed: ranks end when their channel is closed."""

    def __init__(self, body: Body, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._body, self._clock = body, clock
        self._threads: dict[int, threading.Thread] = {}
        self._codes: dict[int, int] = {}

    def start(self, rank: int, host: str, port: int, token: str) -> None:
        """Start a rank; where the coordinator listens does not matter to a thread."""
        del host, port, token
        thread = threading.Thread(target=self._run, args=(rank,), name=f"nfold-rank-{rank}", daemon=True)
        self._threads[rank] = thread
        thread.start()

    def ended(self, rank: int, timeout_s: float) -> str | None:
        """Return how a rank ended, or None while it runs."""
        self._threads[rank].join(timeout_s)
        return None if self._threads[rank].is_alive() else f"ended with code {self._codes.get(rank, 1)}"

    def stop(self, grace_s: float) -> None:
        """Wait for the threads to end."""
        deadline_s = self._clock() + grace_s
        for thread in self._threads.values():
            thread.join(max(0.0, deadline_s - self._clock()))

    def _run(self, rank: int) -> None:
        self._codes[rank] = self._body(rank)
