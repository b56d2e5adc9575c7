"""The user's runs as a table."""

import os
from collections.abc import Sequence

from nfold.core.run_state import ListedRun
from nfold.core.text.units import clock, count, percent
from nfold.program import DEFAULT_FUNCTION
from nfold.view.progress_line import loss_text
from nfold.view.rendering import NONE, PLAIN, Look, or_none, render

_HEAD = ("run", "state", "step", "loss", "where", "for", "script", "folder")


def runs_table(runs: Sequence[ListedRun], *, now: float, host: str, here: str, look: Look = PLAIN) -> str:
    """Return a row for each run, and below what those died of that failed.

    Args:
        runs: in this order.
        now: seconds since 1970.
        host: this one.
        here: the folder that paths below it are told from.
        look: where it will be read.
    """
    table = render(_HEAD, [_row(run, now, host, here) for run in runs], look, numeric=False)
    causes = [f"{run.number}: {run.cause}\n" for run in runs if run.cause]
    return table + ("\n" if causes else "") + "".join(causes)


def _row(run: ListedRun, now: float, host: str, here: str) -> list[str]:
    step = f"{run.step}/{run.total_steps} {percent(run.step / run.total_steps)}" if run.total_steps else NONE
    nodes = f", {count(run.nodes, 'node')}" if run.nodes > 1 else ""
    where = f"{'here' if run.host == host else run.host}{nodes}"
    lasted = clock((now if run.ended is None else run.ended) - run.begun)
    return [
        *(str(run.number), run.ending, step, or_none(run.loss, loss_text), where, lasted),
        *(os.path.basename(run.script).removesuffix(f":{DEFAULT_FUNCTION}") or NONE, _below(run.folder, here)),
    ]


def _below(folder: str, here: str) -> str:
    """Return a path as one would type it here."""
    return os.path.relpath(folder, here) if folder.startswith(os.path.join(here, "")) else folder
