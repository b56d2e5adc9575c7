"""Cells of tables, and rich behind one function, so that it loads only when a table is drawn."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nfold.core.text.units import figure

NONE = "-"
"""A figure that there is not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """Where text will be read."""

    width: int = 100
    """Columns."""
    is_terminal: bool = False
    """Rules and bold heads; plain text otherwise."""
    color: bool = False
    """Off under NO_COLOR."""


PLAIN = Look()


def or_none(value: float | None, text: Callable[[float], str] = figure) -> str:
    """Return a figure's text; a dash where there is none."""
    return NONE if value is None else text(value)


def time_of_day(at: float) -> str:
    """Return the local time of a moment in seconds since 1970."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def metric_text(metrics: Mapping[str, float | None], name: str, text: Callable[[float], str] = figure) -> str:
    """Return a metric's text; `nan` where it is NaN or infinite, that is None, and a dash where there is none."""
    if name not in metrics:
        return NONE
    value = metrics[name]
    return "nan" if value is None else text(value)


def render(head: Sequence[str], rows: Sequence[Sequence[str]], look: Look, *, numeric: bool, title: str = "") -> str:
    """Return a table as text without spaces at the ends of lines.

    Args:
        head: one word or two per column.
        rows: cells, as many in each row as there are heads.
        look: where it will be read.
        numeric: columns after the first are figures, to the right and unbroken; otherwise the last one is prose.
        title: a line above.
    """
    from io import StringIO

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if look.is_terminal else box.ASCII2, title=title or None, title_justify="left")
    for index, name in enumerate(head):
        justify: Literal["left", "right"] = "right" if numeric and index else "left"
        unbroken = numeric or index < len(head) - 1
        table.add_column(Text(name), justify=justify, no_wrap=unbroken, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    stream = StringIO()
    console = Console(
        file=stream,
        width=look.width,
        force_terminal=look.is_terminal,
        no_color=not look.color,
        color_system="standard" if look.is_terminal and look.color else None,
        highlight=False,
        legacy_windows=False,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines()) + "\n"
