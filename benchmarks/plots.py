"""Charts in Mermaid's language, to be pasted into a page that renders them."""

import json
from collections.abc import Sequence

COLOURS = {
    "blue": "#1f77b4",
    "orange": "#ff7f0e",
    "green": "#2ca02c",
    "red": "#d62728",
    "purple": "#9467bd",
    "brown": "#8c564b",
    "pink": "#e377c2",
    "grey": "#7f7f7f",
}
"""Told apart without effort, as Mermaid's own are not."""


def chart(x: str, at: Sequence[float], y: str, lines: dict[str, list[float]]) -> str:
    """Return lines over common places, from 0 up, with a legend in words: Mermaid shows no names of lines.

    Args:
        x: what the places are, with the unit.
        at: the places.
        y: what the values are, with the unit.
        lines: by name, a value for each place.
    """
    if len(lines) > len(COLOURS):
        raise ValueError(f"{len(lines)} lines in one chart, and {len(COLOURS)} colours")
    palette = {"themeVariables": {"xyChart": {"plotColorPalette": ", ".join(COLOURS.values())}}}
    highest = max(value for values in lines.values() for value in values)
    legend = ", ".join(f"{colour} {name}" for colour, name in zip(COLOURS, lines, strict=False))
    rows = [
        "```mermaid",
        f"%%{{init: {json.dumps(palette)}}}%%",
        "xychart-beta",
        f'    x-axis "{x}" {_listed(at)}',
        f'    y-axis "{y}" 0 --> {highest * 1.05:.3g}',
        *(f'    line "{name}" {_listed(values)}' for name, values in lines.items()),
        "```",
        "",
        f"Lines: {legend}.",
    ]
    return "\n".join(rows)


def _listed(values: Sequence[float]) -> str:
    return f"[{', '.join(f'{value:.4g}' for value in values)}]"
