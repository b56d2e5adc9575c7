"""Lets ranks that were allowed many steps stop near, all after the same one.

coordinator           rank
hold            -->             taken in at once, in the middle of a step too: no step is begun any more
                <--   holding   the end of the last one that was begun, or of what was allowed
until k         -->             k is the largest of those: nobody waits for a step that another will not play
"""

import threading

from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev


class Allowance:
    """How far a rank may train. One thread trains; another takes in what the coordinator allows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop = self._begun = 0

    @property
    def stop(self) -> int:
        """The first step that is not allowed."""
        return self._stop

    def grant(self, stop: int) -> None:
        """Allow the steps before `stop`."""
        with self._lock:
            self._stop = stop

    def begin(self, step: int) -> bool:
        """Begin a step, and return True; False: it is not allowed any more."""
        with self._lock:
            if step >= self._stop:
                return False
            self._begun = step + 1
            return True

    def forget(self) -> None:
        """Allow no step, and forget which have begun, for the next generation."""
        with self._lock:
            self._stop = self._begun = 0

    def hold(self) -> int:
        """Allow no step that has not begun; return the first one that has not."""
        with self._lock:
            self._stop = min(self._stop, self._begun)
            return self._stop


class Halting:
    """The coordinator's side: it asks all ranks once, and learns after which step they all stop. Pure."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self._ranks = ranks
        self._has_asked = False
        self._replies: dict[int, int] = {}

    @property
    def is_open(self) -> bool:
        """Whether ranks were asked that have not all replied: nobody may be allowed more until then."""
        return self._has_asked and len(self._replies) < len(self._ranks)

    def ask(self) -> list[cmd.Command]:
        """Return the commands that make all ranks hold; none after the first time."""
        if self._has_asked:
            return []
        self._has_asked = True
        return [cmd.Order(self._ranks, {"do": "hold"})]

    def take(self, event: ev.Received) -> int | None:
        """Take in a rank's reply; return the step before which all stop once all have replied, else None."""
        if event.message["is"] != "holding":
            return None
        self._replies[event.rank] = event.message["step"]
        return max(self._replies.values()) if len(self._replies) == len(self._ranks) else None
