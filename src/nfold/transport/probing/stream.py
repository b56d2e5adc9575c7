"""Decides how a one-way transfer grows, and what rate it has shown. Pure.

Blocks go one way, an answer of one byte per block comes back. How much may be on its way grows with what has
arrived, like TCP's slow start (RFC 5681, section 3.1), so a fast link is filled soon and a slow one is left with little
to drain. Both ends know the size of every block, since it follows from the number of blocks alone.

    arrived bytes  |                        ___---          A token bucket lets its first bytes pass at line speed.
                   |              ___---                    They lie at the start, so the rate is taken from the
                   |    ___---                              second half of the time.
                   |   |
                   +---+------------------------- time
"""

from bisect import bisect_right
from dataclasses import dataclass, field

MIN_BLOCK_BYTES = 4 << 10
MAX_BLOCK_BYTES = 512 << 10
FIRST_BYTES = 4 * MIN_BLOCK_BYTES
"""May be on their way before anything has arrived."""
MAX_BYTES = 4 << 20
"""May be on their way at most, so a link that takes more in a round trip is not seen to do so."""
FEWEST_BLOCKS = 8
FEW_BYTES = 256 << 10
PATIENCE = 3
"""As many budgets a link may take that has not moved more than a few bytes: one lost segment stalls it for 0.2 s."""


@dataclass(slots=True)
class BlockWindow:
    """Which blocks have been sent and have arrived; kept alike at both ends."""

    sizes: list[int] = field(default_factory=list)
    num_arrived: int = 0
    sent_bytes: int = 0
    arrived_bytes: int = 0

    def permit(self) -> list[int]:
        """Take the blocks that may go now as sent, and return their sizes."""
        allowed = self.arrived_bytes + min(MAX_BYTES, FIRST_BYTES + self.arrived_bytes // 2)
        new = []
        while self.sent_bytes + (size := self._next_size()) <= allowed:
            new.append(size)
            self.sent_bytes += size
        self.sizes += new
        return new

    def arrive(self) -> None:
        """Take note that the next block has arrived."""
        self.arrived_bytes += self.sizes[self.num_arrived]
        self.num_arrived += 1

    @property
    def num_on_way(self) -> int:
        """Blocks that have been sent and have not arrived."""
        return len(self.sizes) - self.num_arrived

    def _next_size(self) -> int:
        """An eighth of what was sent, so that few blocks cost a fast link little and a slow one sees many."""
        return min(MAX_BLOCK_BYTES, max(MIN_BLOCK_BYTES, self.sent_bytes // 8))


@dataclass(slots=True)
class RateMeter:
    """When bytes arrived, on the clock of the end that takes them."""

    budget_s: float
    """For the stream; one that has moved little gets PATIENCE of them."""
    at_s: list[float] = field(default_factory=list)
    """Of each block, when the last of it came."""
    total_bytes: list[int] = field(default_factory=list)
    """Up to that block, with it."""

    def arrived(self, at_s: float, total_bytes: int) -> None:
        """Take note that a block came at `at_s`, and with it `total_bytes` of all blocks so far."""
        self.at_s.append(at_s)
        self.total_bytes.append(total_bytes)

    def is_enough(self) -> bool:
        """Whether the budget is used up, and there are blocks to take a rate from."""
        if len(self.at_s) < FEWEST_BLOCKS:
            return False
        budget_s = self.budget_s * (PATIENCE if self.total_bytes[-1] < FEW_BYTES else 1)
        return self.at_s[-1] - self.at_s[0] >= budget_s

    def bytes_per_s(self) -> float:
        """Return the rate over the second half of the time; at least two blocks must have come."""
        half_s = (self.at_s[0] + self.at_s[-1]) / 2
        first = bisect_right(self.at_s, half_s, hi=len(self.at_s) - 1) - 1
        seconds = max(1e-9, self.at_s[-1] - self.at_s[first])
        return (self.total_bytes[-1] - self.total_bytes[first]) / seconds
