"""A chart as data: what to draw, and the words that go with it. The page's script draws it with BokehJS.

So Python draws nothing and loads no library: a page costs milliseconds at the end of a run. Colours of data are fixed
and stand out on white and on black; those of text, axes and grids are the page's, which knows if it is light or dark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["timeline", "grid", "stack", "curves", "columns"]
"""A function of templates/page.js each."""
Dash = Literal["solid", "dashed", "dotted"]

BLUE, DEEP_BLUE, ORANGE, GREEN, PURPLE = "#4c8bd6", "#2c65ad", "#cf7422", "#3f9a5f", "#a865c9"
ROSE, GREY, OLIVE, TEAL, BROWN, RED = "#c0587e", "#8b95a3", "#8f7f35", "#2f8f96", "#94705a", "#b5473c"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, ROSE, TEAL, OLIVE, BROWN, DEEP_BLUE, RED)
"""For ranks, strategies and whatever else has no colour of its own."""

_MOST_LETTERS = 22

Legend = tuple[tuple[str, str], ...]
"""(words, colour): drawn by the page, so that it wraps on a narrow screen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A picture with its words."""

    key: str
    """Names its place on the page: `loss`."""
    title: str
    caption: str
    """What it shows and in which unit, with the figures that matter, for who cannot see it."""
    kind: Kind
    height: int
    """In pixels."""
    data: dict[str, Any]
    """What the script's function for this kind takes: JSON."""
    legend: Legend = ()

    @property
    def document(self) -> dict[str, Any]:
        """Return what the script reads to draw it; title, caption and legend are the template's."""
        return {"key": self.key, "kind": self.kind, "height": self.height, "data": self.data}


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Points joined by a line, or dots."""

    what: str
    """It shows, in the words of the legend."""
    color: str
    x: Sequence[float]
    y: Sequence[float]
    dash: Dash = "solid"
    width: float = 2.0
    """Of the line, in pixels; 0: dots alone."""
    alpha: float = 1.0
    dots: bool = False
    """A mark on every point: measured ones."""

    @property
    def document(self) -> dict[str, Any]:
        """Return what the script reads to draw it, with values to five digits."""
        x, y = list(self.x), [float(f"{value:.5g}") for value in self.y]
        look = {"color": self.color, "dash": self.dash, "width": self.width, "alpha": self.alpha, "dots": self.dots}
        return {"what": self.what, "x": x, "y": y, **look}


@dataclass(frozen=True, kw_only=True, slots=True)
class Axes:
    """Names of a chart's axes, with their units."""

    x: str
    y: str
    log: bool = False
    """Both are logarithmic."""


def curves_data(curves: Sequence[Curve], axes: Axes, marks: Sequence[tuple[float, str]] = ()) -> dict[str, Any]:
    """Return the data of a chart of the kind `curves`.

    Args:
        curves: to be drawn.
        axes: of all of them.
        marks: (where on the first axis, words): upright lines, whose words are shown under the pointer.
    """
    return {
        "marks": {"x": [where for where, _ in marks], "what": [what for _, what in marks]},
        "x_label": axes.x,
        "y_label": axes.y,
        "log": axes.log,
        "curves": [curve.document for curve in curves],
    }


def stack_data(names: Sequence[str], parts: Sequence[tuple[str, str, Sequence[float]]], x_label: str) -> dict[str, Any]:
    """Return the data of a chart of the kind `stack`: a bar per name, made up of parts.

    Args:
        names: of the bars, from the top.
        parts: (words, colour, a value per bar).
        x_label: with the unit.
    """
    rounded = [{"what": what, "color": color, "values": [round(v, 4) for v in values]} for what, color, values in parts]
    return {"names": list(names), "labels": [shortened(name) for name in names], "parts": rounded, "x_label": x_label}


def shortened(name: str) -> str:
    """Return a name cut to 22 letters, which leaves room for what it names, on a narrow screen too."""
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 2]}.."


def thinned(count: int, most: int) -> range:
    """Return at most `most` of the positions 0 .. count - 1, evenly spread, the first one among them."""
    return range(0, count, max(1, -(-count // most)))
