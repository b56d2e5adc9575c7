"""Starts members as threads of this process: for debugging and tests, where one debugger sees all of them."""

import threading
import time
from collections.abc import Callable

Body = Callable[[int], int]
"""Runs one member and returns its exit code."""
LEAST_GRACE_S = 2.0
"""A thread cannot be killed, so it always has this long to leave."""


class ThreadLauncher:
    """One thread per member. A thread cannot be killed: members end when their channel is closed."""

    def __init__(
        self, body: Body, *, finish: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
        body: what a thread runs.
        finish: lets go of what the threads shared, once they have ended.
        clock: for the grace period.
        """
        self._body, self._finish, self._clock = body, finish, clock
        self._threads: dict[int, threading.Thread] = {}
        self._codes: dict[int, int] = {}

    def start(self, member: int, host: str, port: int, token: str) -> None:
        """Start a member; where the coordinator listens does not matter to a thread."""
        del host, port, token
        thread = threading.Thread(target=self._run, args=(member,), name=f"nfold-member-{member}", daemon=True)
        self._threads[member] = thread
        thread.start()

    def ended(self, member: int, timeout_s: float) -> str | None:
        """Return how a member ended, or None while it runs; waits up to `timeout_s` for it."""
        thread = self._threads.get(member)
        if thread is None:
            return "was never started"
        thread.join(timeout_s)
        return None if thread.is_alive() else f"ended with code {self._codes.get(member, 1)}"

    def comes_again(self, member: int) -> bool:
        """Return False: nobody here takes the place of a member that is lost."""
        del member
        return False

    def release(self, member: int, *, is_lost: bool = False, why: str = "") -> None:
        """Let go of a member that has left the job, once its thread has ended."""
        del is_lost, why
        if (thread := self._threads.pop(member, None)) is not None:
            thread.join(LEAST_GRACE_S)

    def last_lines(self) -> list[str]:
        """Return nothing: threads print to the terminal, for everybody to see."""
        return []

    def stop(self, grace_s: float) -> None:
        """Wait up to `grace_s`, or LEAST_GRACE_S if that is longer, for all threads together, then call `finish`."""
        deadline_s = self._clock() + max(grace_s, LEAST_GRACE_S)
        for thread in self._threads.values():
            thread.join(max(0.0, deadline_s - self._clock()))
        self._finish()

    def _run(self, member: int) -> None:
        self._codes[member] = self._body(member)
