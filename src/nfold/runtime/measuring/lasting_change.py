"""Decides when a value that fluctuates has changed for good. Pure.

    block    the mean of at least 4 values in a row, over at least half a second
    change   5 blocks in a row are all above 1.3 times what was usual, or all below 1 / 1.3 of it

A mean and not a median: where a node's share of the processor is limited, a step that is shorter than a period of the
limit takes its bare time or waits for the next period, and only both together say how fast the node is.

What was usual is the median of the first 5 blocks, and after a change that of the blocks which showed it. So noise of a
fifth moves nothing, nor does what is over after a second and a half; a step is one change. After each change twice as
many blocks must agree, 32 at most: who follows a value that comes and goes is always late.
"""

from collections import deque
from statistics import fmean, median

FACTOR = 1.3
NUM_BLOCKS = 5
MOST_BLOCKS = 32
BLOCK_VALUES = 4
BLOCK_S = 0.5


class LastingChange:
    """Watches one value.

    Attributes:
        usual: the value as it has been since the last change; None: that is not known yet.
    """

    def __init__(self) -> None:
        self.usual: float | None = None
        self._values: list[float] = []
        self._span_s = 0.0
        self._blocks: deque[float] = deque(maxlen=NUM_BLOCKS)
        """As many as must agree."""

    def take(self, value: float, span_s: float) -> float | None:
        """Take in a value; return by what factor it has changed for good, or None: it has not.

        Args:
            value: above 0.
            span_s: for how long it has held.
        """
        self._values.append(value)
        self._span_s += span_s
        if len(self._values) < BLOCK_VALUES or self._span_s < BLOCK_S:
            return None
        self._blocks.append(fmean(self._values))
        self._values, self._span_s = [], 0.0
        return self._judge() if len(self._blocks) == self._blocks.maxlen else None

    def settle(self, usual: float) -> None:
        """Let this be what is usual: somebody else has found it, from as many values."""
        self.usual, self._values, self._span_s = usual, [], 0.0
        self._blocks.clear()

    def _judge(self) -> float | None:
        now = median(self._blocks)
        if self.usual is None:
            self.usual = now
            self._blocks.clear()
            return None
        if min(self._blocks) <= FACTOR * self.usual and max(self._blocks) >= self.usual / FACTOR:
            return None
        factor, self.usual = now / self.usual, now
        self._blocks = deque(maxlen=min(MOST_BLOCKS, 2 * len(self._blocks)))
        return factor
