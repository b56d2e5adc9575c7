"""When messages came -> how fast a link brought them, on the clock of the rank where they came.

The end of a send says when the kernel took the bytes, not when they left: its buffer swallows the last ones at once.
The end of a receive has no such error. So a link's speed is the slope of what has come over time, from the first fifth
of the bytes to the last tenth, with the pauses between buckets cut out.

    bytes come   ____/------____/----      a pause: a gap of more than PAUSE times what a long gap lasts
                ^20 %          ^90 %
"""

from collections.abc import Sequence
from itertools import pairwise

Arrival = tuple[float, float]
"""(seconds, bytes)."""

Move = tuple[float, float, float]
"""(begin, end, bytes) of a message."""

FEWEST = 5
"""Fewer messages show no slope."""
_FROM, _TO = 0.2, 0.9
_PAUSE = 4.0
_LONG = 0.9
"""Quantile of the gaps that counts as long: messages of several peers come in bursts, and most gaps are short."""


def arrival_rate(arrivals: Sequence[Arrival]) -> float | None:
    """Return bytes per second while bytes kept coming; None where too few messages came to tell.

    O(n log n).
    """
    curve = _cumulative(_without_pauses(sorted(arrivals)))
    if len(curve) < FEWEST:
        return None
    total = curve[-1][1]
    seconds = _when(curve, _TO * total) - _when(curve, _FROM * total)
    return (_TO - _FROM) * total / seconds if seconds > 0 else None


def moving_rate(ways: Sequence[Sequence[Move]]) -> float | None:
    """Return bytes per second while any of them moved; None where none took any time.

    What travelled before the first of these messages, or after the last, shared the channel with them and is not known.
    So only the time counts in which every way had begun and none had ended, without its first and last fifth; all of it
    where there is no such time.

    Args:
        ways: messages of each way that crosses the channel, whose bytes began to move at the begin.
    """
    used = [moves for moves in ways if moves]
    if not used:
        return None
    first_s = max(min(begin_s for begin_s, _, _ in moves) for moves in used)
    last_s = min(max(end_s for _, end_s, _ in moves) for moves in used)
    every = [move for moves in used for move in moves]
    margin_s = _FROM * (last_s - first_s)
    first_s, last_s = first_s + margin_s, last_s - margin_s
    return _rate_within(every, first_s, last_s) or _rate_within(every, float("-inf"), float("inf"))


def _rate_within(moves: Sequence[Move], first_s: float, last_s: float) -> float | None:
    """Bytes are taken to move evenly from the begin of a message to its end."""
    cut = [(max(begin_s, first_s), min(end_s, last_s), begin_s, end_s, size) for begin_s, end_s, size in moves]
    within = [each for each in cut if each[1] > each[0]]
    seconds = union_s([(begin_s, end_s) for begin_s, end_s, *_ in within])
    total = sum(size * (stop - start) / (end_s - begin_s) for start, stop, begin_s, end_s, size in within)
    return total / seconds if seconds > 0 else None


def union_s(intervals: Sequence[tuple[float, float]]) -> float:
    """Return the length that intervals cover together."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def _without_pauses(arrivals: list[Arrival]) -> list[Arrival]:
    gaps = [after[0] - before[0] for before, after in pairwise(arrivals)]
    moving = sorted(gap for gap in gaps if gap > 0)
    if not moving:
        return arrivals
    long = moving[int(_LONG * (len(moving) - 1))]
    at, kept = 0.0, arrivals[:1]
    for gap, arrival in zip(gaps, arrivals[1:], strict=True):
        at += gap if gap <= _PAUSE * long else long
        kept.append((arrivals[0][0] + at, arrival[1]))
    return kept


def _cumulative(arrivals: list[Arrival]) -> list[Arrival]:
    curve, total = [], 0.0
    for at, num_bytes in arrivals:
        total += num_bytes
        curve.append((at, total))
    return curve


def _when(curve: list[Arrival], num_bytes: float) -> float:
    """Return when that much had come, linear between arrivals."""
    before = curve[0]
    for after in curve:
        if after[1] >= num_bytes:
            step = after[1] - before[1]
            share = (num_bytes - before[1]) / step if step > 0 else 0.0
            return before[0] + share * (after[0] - before[0])
        before = after
    return curve[-1][0]
