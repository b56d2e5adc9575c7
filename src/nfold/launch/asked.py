"""A member that a template was asked for: it is started, or will be, or never."""

import threading
from dataclasses import dataclass, field
from typing import Any

from nfold.launch.child import Child


@dataclass(kw_only=True, slots=True)
class Asked:
    """What a template was told, and what came of it; any thread may ask for that."""

    order: dict[str, Any]
    """What the template is told; JSON."""
    output: int
    """Descriptor that the member prints into."""
    child: Child | None = None
    """Once it is started."""
    why_not: str = ""
    """It was not started."""
    _settled: threading.Event = field(default_factory=threading.Event)
    _settling: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_settled(self) -> bool:
        """Whether it was started, or will not be."""
        return self._settled.is_set()

    def settle(self, child: Child | None, why_not: str = "") -> bool:
        """Say what came of it; False: that is settled already.

        Args:
            child: it was started.
            why_not: it was not.
        """
        with self._settling:
            if self.is_settled:
                return False
            self.child, self.why_not = child, why_not
            self._settled.set()
        return True

    def ended(self, timeout_s: float) -> str | None:
        """Return how it ended, or why it was not started, or None; waits up to `timeout_s`, twice at most."""
        if not self._settled.wait(timeout_s):
            return None
        return self.why_not if self.child is None else self.child.ended(timeout_s)

    def kill(self) -> None:
        """Kill it with all of its group, or let it never be started."""
        if not self.settle(None, "was let go") and self.child is not None:
            self.child.kill()

    def reap(self) -> str:
        """Wait for its end, which comes; return how it ended, or why it was not started."""
        self._settled.wait()
        return self.why_not if self.child is None else self.child.reap()
