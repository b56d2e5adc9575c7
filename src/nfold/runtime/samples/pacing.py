"""How fast samples travel: at what gradients leave idle."""

import threading
import time
from collections.abc import Callable


class Pacer:
    """Lets so many bytes pass in a second. Another thread may change how many."""

    def __init__(self, bytes_per_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        bytes_per_s: see `change`.
        clock: seconds.
        """
        self._clock = clock
        self._changed = threading.Condition()
        self._bytes_per_s, self._is_closed = bytes_per_s, False
        self._ahead_bytes, self._at_s = 0.0, clock()
        """Passed before their time, at that time."""

    def change(self, bytes_per_s: float | None) -> None:
        """Let another number of bytes pass in a second; 0: none until the next change, None: as many as come."""
        with self._changed:
            self._catch_up()
            self._bytes_per_s = bytes_per_s
            self._changed.notify_all()

    def close(self) -> None:
        """Let all that waits go on, at once."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def take(self, num_bytes: int) -> None:
        """Wait until all bytes before these have had their time."""
        with self._changed:
            while (waits_s := self.waits_s()) != 0.0:
                self._changed.wait(waits_s)
            self._ahead_bytes += num_bytes

    def waits_s(self) -> float | None:
        """Return for how long `take` would wait; None: until the next change, 0: not at all."""
        self._catch_up()
        if self._is_closed or self._bytes_per_s is None:
            self._ahead_bytes = 0.0
            return 0.0
        return self._ahead_bytes / self._bytes_per_s if self._bytes_per_s > 0 else None

    def _catch_up(self) -> None:
        now_s = self._clock()
        if self._bytes_per_s is not None:
            self._ahead_bytes = max(0.0, self._ahead_bytes - (now_s - self._at_s) * self._bytes_per_s)
        self._at_s = now_s
