"""Virtual time: a heap of (time, priority, sequence, action), so that ties are played in one fixed order."""

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]

HAPPEN, SETTLE = 0, 1
"""At one instant everything happens first; shared resources settle their rates once, after that."""


class VirtualTime:
    """A clock that jumps from action to action, and the actions that are still to come."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, int, Action]] = []
        self._sequence = 0

    def at(self, time_s: float, action: Action, priority: int = HAPPEN) -> None:
        """Play an action at a time in seconds, which must not be before now. O(log actions)."""
        self._sequence += 1
        heappush(self._heap, (max(time_s, self.now), priority, self._sequence, action))

    def run(self) -> None:
        """Play actions in order until none is left."""
        while self._heap:
            self.now, _, _, action = heappop(self._heap)
            action()


def join(num_parts: int, action: Action) -> Action:
    """Return a function for each of several parts to call when it is done; the last call plays the action."""
    left = num_parts

    def part_done() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            action()

    return part_done


def both(first: Action, second: Action) -> Action:
    """Return an action that plays two actions, the first one first."""

    def play() -> None:
        first()
        second()

    return play
