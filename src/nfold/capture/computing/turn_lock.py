"""A lock that is handed on: who reads samples takes it again and again, and must not keep computing from it."""

import threading


class TurnLock:
    """Held by one thread, which may take it again; who waits for it comes before who had it last. About 1 us."""

    def __init__(self) -> None:
        self._turn, self._held = threading.Lock(), threading.Lock()
        self._owner, self._depth = 0, 0

    def __enter__(self) -> None:
        """Take it, or wait for it. Who waits first keeps `_turn` until then, and with it all others."""
        thread = threading.get_ident()
        if self._owner != thread:
            with self._turn:
                self._held.acquire()
            self._owner = thread
        self._depth += 1

    def __exit__(self, *raised: object) -> None:
        """Let go of it, if this was the first time it was taken."""
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._held.release()

    @property
    def is_wanted(self) -> bool:
        """Whether a thread waits for it, for its holder to ask."""
        return self._turn.locked()
