"""Decides when other shares of a batch would win for good, from what each rank's chunks take while it trains. Pure.

    block     means of at least 4 steps in a row, over at least half a second: what a chunk takes each rank, and what a
              step takes it beside its chunks
    shares    whole chunks, so that the last rank is done as early as the medians of 5 blocks in a row let it be
    they win  if each step of these blocks had been dealt by them, a step would be a twentieth shorter by the medians,
              and half of that at least in every block

So noise moves nothing, and it does not matter which rank is slow, or by how much: only what others could win. Who has
no chunks is left out, since nobody knows how fast it is. Chunks of unlike sizes are weighed.
After each time twice as many blocks must agree, 160 s of them at most, and half as many after ten such spans without a
change. As long as the same shares go on, ranks must take another time than then.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean, median

from nfold.planning.inputs.chunk_counts import share_chunks
from nfold.runtime.measuring.lasting_change import BLOCK_S, BLOCK_VALUES, NUM_BLOCKS

LEAST_GAIN = 0.05
"""Of a step: shares that promise less are not worth a change."""
LONGEST_S = 160.0
"""That must agree at most; 5 blocks always must."""
MOST_BLOCKS = int(LONGEST_S / BLOCK_S)
QUIET_SPANS = 10
"""Without a change, until half as many blocks are enough."""


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Seconds of a rank in a step."""

    chunks_s: float
    """Of all its chunks."""
    rest_s: float
    """That it waits for samples, and updates."""
    bookkeeping_s: float
    """Of what is no task and no message."""
    chunk_size: float = 1.0
    """Seconds of one of its chunks over those of the batch's chunks on average, on the same node."""

    @property
    def even_s(self) -> float:
        """Seconds of all its chunks if those of the batch were of the same size."""
        return self.chunks_s / self.chunk_size

    @property
    def beside_s(self) -> float:
        """Seconds of what it does beside chunks."""
        return self.rest_s + self.bookkeeping_s

    @property
    def busy_s(self) -> float:
        """Seconds of all that it does, if chunks were of the same size."""
        return self.even_s + self.beside_s


@dataclass(frozen=True, slots=True)
class _Block:
    step_s: float
    span_s: float
    ranks: tuple[RankTimes, ...]


class BetterShares:
    """Watches the shares of one generation after another."""

    def __init__(self) -> None:
        self._counts: tuple[int, ...] = ()
        self._steps: list[tuple[float, tuple[RankTimes, ...]]] = []
        self._most = NUM_BLOCKS
        """Blocks that must agree."""
        self._blocks: deque[_Block] = deque()
        self._num_quiet = 0
        """Blocks since the last change."""
        self._told: tuple[RankTimes, ...] = ()
        """What was typical when other plans than this generation's were last looked for."""

    def begin(self, counts: Sequence[int]) -> None:
        """Watch these shares from now on.

        Args:
            counts: chunks of each rank that has any; fewer than two: there is nothing to share.
        """
        self._counts, self._told = tuple(counts), ()
        self._blocks.clear()
        self._steps.clear()

    def back_off(self) -> None:
        """Let twice as many blocks agree from now on, those to come: for the last ones, others have been planned."""
        if self._blocks:
            self._told = _by_rank([block.ranks for block in self._last], median)
        self._most, self._num_quiet = min(MOST_BLOCKS, 2 * self._most), 0
        self._blocks.clear()
        self._steps.clear()

    def take(self, step_s: float, ranks: Sequence[RankTimes]) -> tuple[RankTimes, ...]:
        """Take in a step; return what it typically takes each rank if other shares would win, else nothing.

        Args:
            step_s: the whole step.
            ranks: those with chunks, in the order of the counts.
        """
        if len(self._counts) < 2:
            return ()
        self._steps.append((step_s, tuple(ranks)))
        if len(self._steps) < BLOCK_VALUES or sum(each for each, _ in self._steps) < BLOCK_S:
            return ()
        seconds, each_rank = zip(*self._steps, strict=True)
        self._blocks.append(_Block(fmean(seconds), sum(seconds), _by_rank(each_rank, fmean)))
        self._steps.clear()
        self._num_quiet += 1
        return self._judge() if self._is_long_enough() else ()

    def _is_long_enough(self) -> bool:
        """Drop the blocks that need not agree any more; return whether there are as many as must."""
        spare_s = sum(block.span_s for block in self._blocks) - LONGEST_S
        while len(self._blocks) > NUM_BLOCKS and (len(self._blocks) > self._most or self._blocks[0].span_s <= spare_s):
            spare_s -= self._blocks.popleft().span_s
        return len(self._blocks) >= self._most or (len(self._blocks) >= NUM_BLOCKS and spare_s >= 0)

    def _judge(self) -> tuple[RankTimes, ...]:
        num_agreeing = len(self._blocks)
        if self._won(self._last) and (typical := self._won(self._blocks)):  # few blocks first: they cost less
            self.back_off()
            self._told = typical
            return typical
        if self._num_quiet >= QUIET_SPANS * num_agreeing:
            self._most, self._num_quiet = max(NUM_BLOCKS, num_agreeing // 2), 0
        return ()

    @property
    def _last(self) -> list[_Block]:
        """The last blocks, as few as ever agree."""
        return list(islice(reversed(self._blocks), NUM_BLOCKS))

    def _won(self, blocks: Collection[_Block]) -> tuple[RankTimes, ...]:
        """Return what it typically took each rank in these blocks if other shares had won, else nothing."""
        typical = _by_rank([block.ranks for block in blocks], median)
        if not self._is_new(typical):
            return ()
        chunks_s = tuple(each.even_s / count for each, count in zip(typical, self._counts, strict=True))
        beside_s = tuple(each.beside_s for each in typical)
        other = share_chunks(sum(self._counts), chunks_s, beside_seconds=beside_s)
        if other == self._counts:
            return ()
        gains = [self._gain(block, other) for block in blocks]
        return typical if median(gains) >= LEAST_GAIN and min(gains) >= LEAST_GAIN / 2 else ()

    def _is_new(self, typical: tuple[RankTimes, ...]) -> bool:
        least_s = LEAST_GAIN * max(each.busy_s for each in typical)
        pairs = zip(typical, self._told, strict=False)
        return not self._told or any(abs(now.busy_s - before.busy_s) > least_s for now, before in pairs)

    def _gain(self, block: _Block, other: Sequence[int]) -> float:
        """By which share of itself a step of a block would have been shorter by other shares."""
        now_s = max(each.busy_s for each in block.ranks)
        then_s = max(
            each.beside_s + each.even_s * count / before
            for each, before, count in zip(block.ranks, self._counts, other, strict=True)
            if count
        )
        return (now_s - then_s) / block.step_s


def _by_rank(
    rows: Sequence[tuple[RankTimes, ...]], typical: Callable[[Sequence[float]], float]
) -> tuple[RankTimes, ...]:
    """Return what is typical of each rank in several steps or blocks."""
    return tuple(
        RankTimes(*(typical([getattr(each, name) for each in own]) for name in RankTimes.__slots__))
        for own in zip(*rows, strict=True)
    )
