"""How fast samples travel, and when: at the rate of a link, while gradients leave it idle."""

import threading
import time
from collections.abc import Callable

from nfold.runtime.samples.gradients_first import Gate


class Pacer:
    """Lets so many bytes pass in a second, while a gate is open. Another thread may change how many."""

    def __init__(
        self,
        bytes_per_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        ahead_bytes: int = 0,
        gate: Gate | None = None,
    ) -> None:
        """Args:
        bytes_per_s: see `change`.
        clock: seconds.
        ahead_bytes: that may pass before their time, so that a link is busy until a thread is awake.
        gate: says when nothing passes, however fast; None: it always may.
        """
        self._clock, self._ahead_limit, self._gate = clock, ahead_bytes, gate
        self._changed = threading.Condition() if gate is None else gate.changed
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
        """Wait until the gate is open, and all bytes before these have had their time, or nearly."""
        with self._changed:
            while (waits_s := self.waits_s()) != 0.0:
                self._changed.wait(waits_s)
            self._ahead_bytes += num_bytes

    def waits_s(self) -> float | None:
        """Return for how long `take` would wait at least; None: until the next change, 0: not at all."""
        self._catch_up()
        if self._is_closed:
            return 0.0
        paced_s, closed_s = self._paced_s(), 0.0 if self._gate is None else self._gate.waits_s()
        return None if paced_s is None else max(paced_s, closed_s)

    def _paced_s(self) -> float | None:
        if self._bytes_per_s is None:
            self._ahead_bytes = 0.0
            return 0.0
        early_bytes = max(0.0, self._ahead_bytes - self._ahead_limit)
        return early_bytes / self._bytes_per_s if self._bytes_per_s > 0 else None

    def _catch_up(self) -> None:
        now_s = self._clock()
        if self._bytes_per_s is not None:
            self._ahead_bytes = max(0.0, self._ahead_bytes - (now_s - self._at_s) * self._bytes_per_s)
        self._at_s = now_s
