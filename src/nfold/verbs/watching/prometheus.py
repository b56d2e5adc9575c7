"""Gives a run's figures to Prometheus, which asks for them every few seconds."""

import contextlib
from collections.abc import Callable, Iterator
from math import nan
from typing import get_args

from nfold.core.run_state import Phase, RankState, RunState
from nfold.verbs.watching.run_totals import RunTotals
from nfold.verbs.watching.web_server import Answer, answering
from nfold.version import __version__
from nfold.view.prometheus_text import CONTENT_TYPE, Family, Labels, prometheus_text
from nfold.view.tables import PARTS

PATH = "/metrics"


class Prometheus:
    """Sums up a run, and answers with its figures. Between two questions it costs an addition for each of them."""

    def __init__(self, address: tuple[str, int], flag: str, run: str) -> None:
        """Args:
        address: where to listen.
        flag: that asks for it, as it was typed.
        run: the folder's path.
        """
        self._address, self._flag, self._run = address, flag, run
        self._totals, self._state = RunTotals(), RunState(at=0.0, phase="starting")

    @contextlib.contextmanager
    def opened(self, note: Callable[[str], None]) -> Iterator[None]:
        """Answer until the end of a block; `note` takes the address.

        Raises:
            PlanError: nothing can listen there.
        """
        host, port = self._address
        with answering(host, port, self._flag, self._answer) as port:
            named = f"[{host}]" if ":" in host else host
            note(f"figures for Prometheus: http://{named}:{port}{PATH}")
            yield

    def take(self, happening: object) -> None:
        """Add to the sums."""
        self._totals.take(happening)

    def noted(self, text: str) -> None:
        """Count it."""
        del text
        self._totals.noted()

    def show(self, state: RunState) -> None:
        """Take what is said of the run from now on."""
        self._state = state

    def _answer(self, path: str) -> Answer:
        if path.partition("?")[0] != PATH:
            return Answer(status=404, text=f"The figures are at {PATH}.\n")
        families = [*figures_of(self._state, self._run), *self._totals.families()]
        return Answer(kind=CONTENT_TYPE, text=prometheus_text(families))


def figures_of(state: RunState, run: str) -> list[Family]:
    """Return what is so at the moment.

    Args:
        state: of the run.
        run: the folder's path.
    """
    known: dict[str, tuple[str, float | None]] = {
        "nfold_step": ("Steps done, those of earlier commands included.", state.step),
        "nfold_planned_steps": ("Steps of the whole run.", state.total_steps),
        "nfold_epoch": ("The first is 1.", state.epoch),
        "nfold_checkpoint_step": ("Step of the last checkpoint that this command has written.", state.kept_step),
        "nfold_loss": ("Loss of the last step.", state.loss),
        "nfold_samples_per_second": ("Over the last steps.", state.samples_per_s),
        "nfold_left_seconds": ("Until the last step, at the pace of the last ones.", state.left_s),
        "nfold_nodes": ("Nodes with ranks.", len({rank.node for rank in state.ranks})),
    }
    about: Labels = (("run", run), ("strategy", state.strategy), ("version", __version__))
    return [
        Family("nfold_run_info", "gauge", "Always 1; the labels say which run.", {about: 1}),
        *(_gauge(name, told, {(): value}) for name, (told, value) in known.items()),
        _gauge("nfold_phase", "1 of the phase that the run is in.", _of_each("phase", _phases(state))),
        _gauge("nfold_metric", "Of the last evaluation.", _of_each("name", _metrics(state))),
        _gauge("nfold_step_part_seconds", "Mean of the last steps, over the workers.", _of_each("kind", _parts(state))),
        _gauge("nfold_ranks", "Ranks.", _of_each("role", {"worker": state.workers, "server": state.servers})),
        _gauge("nfold_rank_memory_bytes", "Resident.", {_rank(each): each.rss_bytes for each in state.ranks}),
        _gauge("nfold_link_bytes_per_second", "As measured, or declared, before the plan was made.", _links(state)),
    ]


def _gauge(name: str, told: str, figures: dict[Labels, float | None]) -> Family:
    return Family(name, "gauge", told, {labels: value for labels, value in figures.items() if value is not None})


def _of_each(label: str, figures: dict[str, float]) -> dict[Labels, float | None]:
    return {((label, value),): figure for value, figure in figures.items()}


def _phases(state: RunState) -> dict[str, float]:
    return {phase: int(state.phase == phase) for phase in get_args(Phase)}


def _metrics(state: RunState) -> dict[str, float]:
    return {name: nan if value is None else value for name, value in state.metrics.items()}


def _parts(state: RunState) -> dict[str, float]:
    return {} if state.parts is None else {kind: getattr(state.parts, field) for kind, field in PARTS.items()}


def _rank(rank: RankState) -> Labels:
    return (("rank", str(rank.rank)), ("node", rank.node), ("role", rank.role))


def _links(state: RunState) -> dict[Labels, float | None]:
    return {
        (("node", link.node), ("direction", direction), ("origin", link.origin)): getattr(
            link, f"{direction}link_bytes_per_s"
        )
        for link in state.links
        for direction in ("up", "down")
    }
