"""Finds out for which numbers of samples a program goes the way that was followed, where it decides by their number."""

import traceback
from collections.abc import Iterator
from typing import Any

from torch.fx.experimental.symbolic_shapes import ShapeEnv

from nfold.capture.program.users_line import is_torchs

_LEAST = 2
"""Samples of a chunk, where a batch has as many; one alone is tried (`divisible.why_unlike_alone`)."""
_EACH = 1024
"""Up to so many samples each number is looked at, and beyond it those that a decision names."""


def why_another_way(env: ShapeEnv, symbol: Any, followed: int, largest: int) -> tuple[str, bool]:
    """Say which decision of the user's depends on how many samples there are.

    Args:
        env: what was decided while a program was followed.
        symbol: of the number of samples.
        followed: the number in whose place the symbol stood.
        largest: of a batch; 0: not known.

    Returns:
        The decision with its line, empty if none matters; whether chunks go another way than their batch does.
    """
    for expression, line in _decisions(env):
        if expression.free_symbols != {symbol}:
            return f"it decides by the number of samples ({line})", False
        sizes = _sizes(expression, largest) if largest else [followed]
        ways = {size: bool(expression.subs(symbol, size)) for size in sizes}
        other = next((size for size in sizes if ways[size] != ways[sizes[-1]]), 0)
        if other:
            return f"goes another way for {other} samples than for {largest} ({line})", True
        if not largest or not ways[sizes[-1]]:
            return f"it decides by the number of samples ({line})", False
    return "", False


def _sizes(expression: Any, largest: int) -> list[int]:
    """Return numbers of samples, ascending; the last is the largest."""
    named = {int(number) + step for number in expression.atoms() if number.is_Integer for step in (-1, 0, 1)}
    each = {*range(_LEAST, min(largest, _EACH) + 1), *named, largest}
    return sorted(size for size in each if min(_LEAST, largest) <= size <= largest)


def _decisions(env: ShapeEnv) -> Iterator[tuple[Any, str]]:
    """Yield what was found true of the number of samples in lines that are not torch's."""
    for guard in env.guards:
        frame = guard.sloc.framework_loc
        if isinstance(frame, traceback.FrameSummary) and not is_torchs(frame.filename):
            yield guard.expr, f"{frame.filename}, line {frame.lineno}: {frame.line}"
