"""A run while it goes on, as a page that asks for its parts each second."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from nfold.core.run_state import RankState, RunState
from nfold.view.html.document import document, macros
from nfold.view.html.loss_curve import Points, loss_curve
from nfold.view.rendering import time_of_day
from nfold.view.top_text import RANK_COLUMNS, SILENT_S, has_ended, part_shares

_MOST_RANKS = 64
"""In the table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveFacts:
    """What there is to see of a run."""

    name: str
    folder: str
    state: RunState
    now: float
    """Seconds since 1970."""
    trained: Points = ()
    """Loss of steps."""
    tested: Points = ()
    """Loss of evaluations."""
    log: Sequence[str] = ()
    """Its last lines, the newest last."""


def dashboard_page(name: str) -> str:
    """Return the page, a whole HTML document with nothing in it yet."""
    return document("dashboard.html", script="dashboard.js", title=f"nfold: {name}")


def dashboard_parts(facts: LiveFacts) -> str:
    """Return what goes where on the page, as JSON: HTML by the name of its place; empty: there is nothing to see."""
    state, of = facts.state, macros("dashboard_parts.html")
    age_s = facts.now - state.at
    is_silent = not has_ended(state) and age_s > SILENT_S
    shown = state.ranks[:_MOST_RANKS]
    parts = {
        "head": of.head(facts.name, facts.folder, state, age_s if is_silent else None),
        "figures": of.figures(state),
        "loss": of.loss(loss_curve(facts.trained, facts.tested)),
        "time": of.time([] if state.parts is None else part_shares(state.parts)),
        "events": of.events([(time_of_day(each.at), each.text) for each in state.events[::-1]]),
        "ledger": of.ledger(state.ledger[::-1]),
        "ranks": of.ranks([_cells(rank) for rank in shown], len(state.ranks) - len(shown)),
        "links": of.links(state.links),
        "log": of.log(facts.log),
    }
    return json.dumps({place: str(text).strip() for place, text in parts.items()})


def _cells(rank: RankState) -> dict[str, str]:
    return {name: cell(rank) for name, cell in RANK_COLUMNS.items()}
