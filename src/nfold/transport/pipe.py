"""What a transport needs of a connection to one peer: an ordered, blocking way for bytes in each direction."""

from collections.abc import Sequence
from typing import Protocol


class Pipe(Protocol):
    """Bytes to and from one peer, in order. One thread reads and one writes at a time; both raise when it breaks."""

    def read_into(self, target: memoryview) -> None:
        """Wait until the target is full."""
        ...

    def write(self, parts: Sequence[memoryview]) -> None:
        """Wait until all parts have gone, and may change again."""
        ...

    def try_write(self, parts: Sequence[memoryview]) -> int:
        """Write what goes without waiting, and return how many bytes that was."""
        ...

    def silent_s(self) -> float:
        """Return for how long the peer's machine has given no sign of life; 0 where that cannot be told."""
        ...

    def shutdown(self) -> None:
        """Break the pipe and wake who waits in it, as far as that is possible."""
        ...

    def close(self) -> None:
        """Let go of it. No other thread uses it any more."""
        ...
