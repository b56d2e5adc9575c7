"""Does things a fixed time after they were handed in: latency for links whose kernel cannot delay packets."""

import threading
import time
from collections import deque
from collections.abc import Callable

Act = Callable[[], None]


class DelayLine:
    """A thread that does things later, in the order in which they were handed in. Whoever hands in never waits."""

    def __init__(
        self,
        delay_s: float,
        name: str,
        failed: Callable[[Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        delay_s: between handing in and doing.
        name: of the thread.
        failed: is told what an act raised; nothing is done after that.
        clock: gives seconds.
        """
        self._delay_s, self._failed, self._clock = delay_s, failed, clock
        self._changed = threading.Condition()
        self._line: deque[tuple[float, Act]] = deque()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, act: Act) -> None:
        """Hand in something to do, `delay_s` from now."""
        with self._changed:
            self._line.append((self._clock() + self._delay_s, act))
            if len(self._line) == 1:
                self._changed.notify()

    def stop(self) -> None:
        """Do nothing more; what is still in the line is forgotten."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def close(self) -> None:
        """Stop, and wait for what is being done."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while (act := self._next()) is not None:
                act()
        except Exception as error:  # whatever it was, the one who asked for the delay must hear of it
            self._failed(error)

    def _next(self) -> Act | None:
        with self._changed:
            while not self._stopped:
                if not self._line:
                    self._changed.wait()
                elif (left_s := self._line[0][0] - self._clock()) > 0:
                    self._changed.wait(left_s)
                else:
                    return self._line.popleft()[1]
        return None
