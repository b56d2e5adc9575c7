"""A placement as a picture: operators downwards, chunks across, and in each cell the rank that computes it.

          chunk 0 1 2 3
conv1 .. relu5  0 1 0 1
fc1 .. loss     2 2 2 2
"""

import itertools
from collections.abc import Iterator

from nfold.core.placement import Placement
from nfold.view.rendering import PLAIN, Look

MOST_ROWS = 48
_LONGEST_LABEL = 44
_COLORS = (32, 36, 33, 35, 34, 31, 92, 96, 93, 95, 94, 91)
"""Foreground colours of a terminal; ranks take them in turn."""


def grid_picture(placement: Placement, *, look: Look = PLAIN) -> str:
    """Return who computes what; neighbouring operators with the same owners are one row.

    Chunks that do not fit side by side are shown in blocks below each other.
    """
    rows = list(_rows(placement))
    hidden = len(rows) - MOST_ROWS
    shown = rows if hidden <= 0 else rows[:MOST_ROWS]
    label = max((len(name) for name, _ in (("chunk", ()), *shown)), default=0)
    column = max(len(str(placement.num_chunks - 1)), len(str(placement.world_size - 1))) + 1
    per_block = max(1, (look.width - label - 1) // column)
    blocks = [
        _block(shown, range(first, min(first + per_block, placement.num_chunks)), label, column, look)
        for first in range(0, placement.num_chunks, per_block)
    ]
    more = f"and {hidden} more rows; --json has them all\n" if hidden > 0 else ""
    return "\n".join(blocks) + more


def _rows(placement: Placement) -> Iterator[tuple[str, tuple[int, ...]]]:
    for ranks, operators in itertools.groupby(placement.owners, key=placement.owners.__getitem__):
        yield _label(list(operators)), ranks


def _label(operators: list[str]) -> str:
    ends = operators if len(operators) < 2 else [operators[0], operators[-1]]
    most = _LONGEST_LABEL // len(ends) - 2
    return " .. ".join(name if len(name) <= most else f"..{name[2 - most :]}" for name in ends)


def _block(rows: list[tuple[str, tuple[int, ...]]], chunks: range, label: int, column: int, look: Look) -> str:
    lines = ["chunk".rjust(label) + "".join(f"{chunk:>{column}}" for chunk in chunks)]
    for name, ranks in rows:
        cells = "".join(_cell(ranks[chunk], column, look) for chunk in chunks)
        lines.append(name.ljust(label) + cells)
    return "\n".join(lines) + "\n"


def _cell(rank: int, column: int, look: Look) -> str:
    text = f"{rank:>{column}}"
    return f"\x1b[{_COLORS[rank % len(_COLORS)]}m{text}\x1b[0m" if look.color else text
