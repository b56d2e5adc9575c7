"""Sums of floating-point numbers that are rounded once, at the end: the same whatever order and groups they come in.

A sum is kept as a few numbers that add up to it exactly, and of which none reaches into another one's bits (Shewchuk
1997, "Adaptive precision floating-point arithmetic").
"""

import math
from collections.abc import Sequence


def add(parts: list[float], value: float) -> None:
    """Add a value to a sum in parts, the smallest first. What is no finite number stays so, in one part."""
    if not math.isfinite(rounded := sum(parts) + value):
        parts[:] = [rounded]
        return
    kept = 0
    for part in parts:
        large, small = (value, part) if abs(value) >= abs(part) else (part, value)
        value = large + small
        if rest := small - (value - large):
            parts[kept] = rest
            kept += 1
    parts[kept:] = [value]


def total(parts: Sequence[float]) -> float:
    """Return the sum of the parts of one or several sums."""
    return math.fsum(parts) if all(map(math.isfinite, parts)) else sum(parts)
