"""Asks for another host where one was taken away while a run trains: it comes when its manager has one again."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable

from nfold.hosts.host_agent import HostAgent
from nfold.verbs.ranks.host_scaling import Scaling

MOST_IN_A_ROW, ROW_S = 8, 60.0
"""More that are taken away within this time are not replaced: it is the program that ends hosts, or the manager."""


class Replacing:
    """Takes note of hosts that are gone, and asks for others in a thread of its own."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        say: is given lines for the user.
        clock: gives seconds.
        """
        self._say, self._clock = say, clock
        self._gone: queue.SimpleQueue[HostAgent | None] = queue.SimpleQueue()
        self._asked_s: deque[float] = deque(maxlen=MOST_IN_A_ROW)
        self._thread: threading.Thread | None = None

    def taken(self, agent: HostAgent) -> None:
        """Take note of an agent whose host was taken away; any thread may call this."""
        self._gone.put(agent)

    def begin(self, scaling: Scaling) -> None:
        """Ask for others from now on."""
        self._thread = threading.Thread(target=self._run, args=(scaling,), name="nfold-replacing", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask for nobody any more. Safe to call again."""
        self._gone.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self, scaling: Scaling) -> None:
        for agent in iter(self._gone.get, None):
            now_s = self._clock()
            if len(self._asked_s) == MOST_IN_A_ROW and now_s - self._asked_s[0] < ROW_S:
                self._say(f"note: no host is asked for in place of {agent.name}: {MOST_IN_A_ROW} were, within a minute")
            elif told := scaling.replace(agent):
                self._asked_s.append(now_s)
                self._say(told)
