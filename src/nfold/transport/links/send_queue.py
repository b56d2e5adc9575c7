"""Frames that wait to go out: samples and state that move go when nothing else waits, so that they hold up no step."""

from collections import deque

from nfold.transport.links.framing import Frame
from nfold.transport.tags import travels_beside


class SendQueue:
    """The frames of one link, each kind in the order in which it came. Its owner has the lock."""

    def __init__(self) -> None:
        self._first: deque[Frame] = deque()
        self._later: deque[Frame] = deque()

    def __bool__(self) -> bool:
        return bool(self._first or self._later)

    def append(self, frame: Frame) -> None:
        """Let a frame wait. One that is half written comes before all that follows; a last word behind all there is."""
        if frame.tag is None:
            self._first += self._later
            self._later.clear()
        waits = frame.tag is not None and travels_beside(frame.tag) and not frame.is_begun
        (self._later if waits else self._first).append(frame)

    def popleft(self) -> Frame:
        """Return the frame to write next, which waits no longer."""
        return (self._first or self._later).popleft()

    def clear(self) -> None:
        """Give up what waits."""
        self._first.clear()
        self._later.clear()

    def forget_before(self, generation: int) -> None:
        """Give up messages of earlier generations, but for one that is half written."""
        self._first = deque(frame for frame in self._first if frame.is_begun or not frame.is_before(generation))
        self._later = deque(frame for frame in self._later if not frame.is_before(generation))
