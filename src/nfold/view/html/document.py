"""Template, style, scripts and charts -> one HTML file that needs nothing else.

Whatever comes from users (paths, names of nodes and operators, what a verdict quotes) is escaped by the template, or is
JSON in which no tag can end. Should a name slip through all the same, the page's policy lets no script run but the two
it was written with, and nothing be fetched.
"""

import base64
import hashlib
import shlex
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfold.core.text.units import (
    clock,
    count,
    duration,
    figure,
    link_rate,
    percent,
    rate,
    seconds,
    signed_percent,
    size,
)
from nfold.errors import InternalError
from nfold.version import __version__
from nfold.view.explain import what_goes
from nfold.view.html.charts import Chart
from nfold.view.progress_line import loss_text
from nfold.view.rendering import metric_text, or_none, time_of_day

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_TEMPLATES = Path(__file__).parent / "templates"
_LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")


def document(template: str, *, charts: Sequence[Chart] = (), script: str | None = None, **values: Any) -> str:
    """Return a whole page. Whoever makes charts and tables bounds them, so that it stays below 2 MB.

    Args:
        template: name of a file under templates/.
        charts: in any order; the template says where each goes.
        script: name of one there that asks the page's own server for more; None: the page asks nobody for anything.
        values: what else the template shows.

    Raises:
        InternalError: BokehJS, which draws the charts, is not installed.
    """
    scripts = _scripts() if charts else ()
    if script is not None:
        scripts = (*scripts, (_TEMPLATES / script).read_text(encoding="utf-8"))
    return (
        _environment()
        .get_template(template)
        .render(
            charts={chart.key: chart for chart in charts},
            scripts=scripts,
            policy=_policy(scripts) + ("; connect-src 'self'" if script is not None else ""),
            style=(_TEMPLATES / "page.css").read_text(encoding="utf-8"),
            version=__version__,
            **values,
        )
    )


def macros(template: str) -> Any:
    """Return the macros of a template, as functions that make a part of a page each."""
    return _environment().get_template(template).module


def prose(text: str) -> "Markup":
    """Return a sentence as HTML, what stands between backticks as code; all of it is escaped."""
    from markupsafe import Markup, escape

    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if index % 2 else escape(piece) for index, piece in enumerate(pieces)
    )


@cache
def _scripts() -> tuple[str, ...]:
    """Return BokehJS, without its parts for widgets and servers, and our own script.

    The files are found without importing the package, which would take half a second.
    """
    package = find_spec("bokeh")
    if package is None or package.origin is None:
        raise InternalError("bokeh is not installed, though nfold depends on it. Use: pip install bokeh")
    library = Path(package.origin).parent / "server" / "static" / "js"
    return tuple(
        path.read_text(encoding="utf-8") for path in (*(library / name for name in _LIBRARY), _TEMPLATES / "page.js")
    )


def _policy(scripts: Sequence[str]) -> str:
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for unit in (clock, count, duration, figure, link_rate, percent, rate, seconds, signed_percent, size):
        environment.filters[unit.__name__] = unit
    environment.globals.update(metric_text=metric_text, or_none=or_none, seconds=seconds, duration=duration)
    environment.filters["loss"] = loss_text
    environment.filters["time_of_day"] = time_of_day
    environment.filters["shell"] = shlex.join
    environment.filters["prose"] = prose
    environment.filters["what_goes"] = what_goes
    return environment
