"""A ResidencyPlan as a picture (SVG, alone or in a page): what each node holds now and later, how long it computes."""

from collections.abc import Iterator
from html import escape

from nfold.core.residency import NodeShare, ResidencyPlan
from nfold.core.text.units import count, duration
from nfold.view.html.charts import BLUE, GREY, ORANGE, shortened
from nfold.view.html.document import document
from nfold.view.place_text import role, title

MOST_NODES = 60
_ROW, _BAR, _TOP = 40, 12, 46
_LEFT, _WIDE, _RIGHT = 190, 480, 250
_WIDTH = _LEFT + _WIDE + _RIGHT


def place_svg(plan: ResidencyPlan) -> str:
    """Return a picture: two bars for each node, above what it holds now, below what it will hold."""
    shown = plan.nodes[:MOST_NODES]
    most = max(max(node.held, node.holds) for node in plan.nodes) or 1
    height = _TOP + _ROW * len(shown) + 30
    rows = "\n".join(line for index, node in enumerate(shown) for line in _row(node, index, most))
    hidden = len(plan.nodes) - len(shown)
    more = _words(_LEFT, height - 10, f"{count(hidden, 'more node')} not drawn", GREY) if hidden else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(title(plan))}" font-family="system-ui, sans-serif" font-size="13" fill="currentColor">\n'
        f"<title>{escape(title(plan))}</title>\n{_legend()}\n{rows}\n{more}\n</svg>\n"
    )


def place_page(plan: ResidencyPlan) -> str:
    """Return the picture with all words in a page that opens without a network."""
    from markupsafe import Markup

    return document(
        "place.html",
        charts=(),
        title="nfold place",
        plan=plan,
        asked=title(plan),
        picture=Markup(place_svg(plan)),
        role=role,
    )


def _legend() -> str:
    return (
        _bar(_LEFT, 12, 14, GREY)
        + _words(_LEFT + 20, 23, "samples that live there now")
        + _bar(_LEFT + 220, 12, 14, BLUE)
        + _words(_LEFT + 240, 23, "that will live there")
    )


def _row(node: NodeShare, index: int, most: int) -> Iterator[str]:
    top = _TOP + index * _ROW
    yield _words(_LEFT - 10, top + 18, shortened(node.node), anchor="end")
    yield _bar(_LEFT, top, node.held / most * _WIDE, GREY)
    yield _bar(_LEFT, top + _BAR + 2, node.holds / most * _WIDE, BLUE)
    change = f"{node.held} to {node.holds}" if node.held != node.holds else str(node.held)
    what = f"an epoch computes {duration(node.computes_s)}" if node.is_member else role(node)
    yield _words(_LEFT + _WIDE + 12, top + 10, change)
    yield _words(_LEFT + _WIDE + 12, top + 26, what, GREY if node.is_member else ORANGE)


def _bar(x: float, y: float, width: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BAR}" rx="2" fill="{color}"/>'


def _words(x: float, y: float, text: str, color: str = "currentColor", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}">{escape(text)}</text>'
