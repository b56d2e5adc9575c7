"""What an agent does when its coordinator is gone: it keeps its members, and dials until another one lets it in."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable

from nfold.core.text.units import seconds
from nfold.runtime.control.channel import ChannelClosed, SocketChannel
from nfold.runtime.control.returning_channel import RETRY_S


class Holding:
    """How long an agent waits for another coordinator."""

    def __init__(self, dial: Callable[[], SocketChannel], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        dial: returns a connection to a coordinator, or raises ChannelClosed.
        clock: gives seconds.
        """
        self._dial, self._clock = dial, clock
        self._for_s, self._resume = 0.0, ""
        self._deadline_s: float | None = None
        self._is_told = False
        """Whether people know that it holds, which it tells once for each coordinator that lets it."""
        self._is_over = threading.Event()
        self.has_lost = False
        """Whether a coordinator has gone."""

    @property
    def is_possible(self) -> bool:
        """Whether it was told to hold."""
        return self._for_s > 0.0

    def allow(self, for_s: float, resume: str) -> None:
        """Wait for so many seconds, whenever the coordinator is lost from now on; `resume` is what to type then."""
        self._for_s, self._resume, self._is_told = for_s, resume, False

    def heard(self) -> None:
        """Take note of an order: whoever gives it is there."""
        self._deadline_s = None

    def end(self) -> None:
        """Wait no longer; from any thread."""
        self._is_over.set()

    def another(self) -> SocketChannel | None:
        """Return a connection to another coordinator; None: the time is over, or it must not wait."""
        self.has_lost = True
        if self.is_possible and self._deadline_s is None and not self._is_over.is_set():
            self._deadline_s = self._clock() + self._for_s
            self._tell_once()
        while self._deadline_s is not None and self._clock() < self._deadline_s and not self._is_over.wait(RETRY_S):
            with contextlib.suppress(ChannelClosed):
                channel = self._dial()
                if not self._is_over.is_set():
                    return channel
                channel.close()
        if self.is_possible:
            _tell("holds no longer: the ranks here end")
        return None

    def _tell_once(self) -> None:
        if not self._is_told:
            self._is_told = True
            _tell(f"the command of the run is gone; its ranks here hold for {seconds(self._for_s)}. {self._resume}")


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # who read it may be gone with the command
        print(f"nfold agent: {text}", file=sys.stderr, flush=True)
