"""A Comparison -> compare.html: who wins where first, then every run, its parts, its scaling and its prediction."""

from collections.abc import Sequence
from typing import Literal

from nfold.core.findings.comparison import Architecture, Compared, Comparison
from nfold.core.text.units import link_rate, signed_percent
from nfold.view.comparison_text import left_out_sentences, takeover_sentences, winner_sentences
from nfold.view.html.charts import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    ROSE,
    SERIES,
    TEAL,
    Axes,
    Chart,
    Curve,
    curves_data,
    stack_data,
)
from nfold.view.html.cost_charts import cost_charts, race_chart
from nfold.view.html.document import document
from nfold.view.html.scaling_chart import ScalingCurve, scaling_chart

_MILLI = 1e3
_MOST_RUNS = 60
"""In charts."""
_MOST_ROWS = 200
"""Runs in tables."""


def compare_page(comparison: Comparison) -> str:
    """Return the page, a whole HTML document of less than 2 MB."""
    drawn = [
        _parts_chart(comparison.runs),
        *_scaling_charts(comparison),
        *cost_charts(comparison.runs[:_MOST_RUNS]),
        race_chart(comparison),
        _prediction_chart(comparison.runs[:_MOST_RUNS]),
    ]
    charts = [chart for chart in drawn if chart is not None]
    links = list(dict.fromkeys(winner.link_bytes_per_s for winner in comparison.winners))
    sizes = sorted({winner.workers for winner in comparison.winners})
    return document(
        "compare.html",
        charts=charts,
        title="nfold compare",
        comparison=comparison,
        runs=comparison.runs[:_MOST_ROWS],
        num_unlisted=max(0, len(comparison.runs) - _MOST_ROWS),
        num_undrawn=max(0, len(comparison.runs) - _MOST_RUNS),
        winners=winner_sentences(comparison),
        takeovers=takeover_sentences(comparison),
        missing=left_out_sentences(comparison),
        links=links,
        sizes=sizes,
        won={(winner.link_bytes_per_s, winner.workers): winner for winner in comparison.winners},
        metrics=list(dict.fromkeys(name for run in comparison.runs for name in run.report.metrics)),
        some_cost=any(run.cost_per_epoch is not None for run in comparison.runs),
    )


def _parts_chart(runs: Sequence[Compared]) -> Chart | None:
    shown = runs[:_MOST_RUNS]
    if not shown:
        return None
    times = [run.report.time for run in shown]
    every = (
        ("compute", BLUE, [time.compute_s for time in times]),
        ("communication", ORANGE, [time.exposed_communication_s for time in times]),
        ("waiting for a peer", GREY, [time.peer_wait_s for time in times]),
        ("input", ROSE, [time.input_s for time in times]),
        ("update", GREEN, [time.update_s for time in times]),
        ("other", TEAL, [max(0.0, time.other_s) for time in times]),
    )
    parts = [(what, color, [_MILLI * value for value in values]) for what, color, values in every if any(values)]
    return Chart(
        key="parts",
        title="Step time and its parts",
        caption="Mean of a step over the workers, in milliseconds.",
        kind="stack",
        height=90 + 30 * len(shown),
        data=stack_data([run.name for run in shown], parts, "ms of each step"),
        legend=tuple((what, color) for what, color, _ in parts),
    )


def _scaling_charts(comparison: Comparison) -> list[Chart | None]:
    """One chart for each link: measured and predicted throughput over that of the plain run.

    Asynchronous runs are judged by the time to a loss, so their throughput stands beside no other.
    """
    plain = next((run.report for run in comparison.runs if run.report.workers == 1), None)
    if plain is None:
        return []
    links = list(dict.fromkeys(run.link_bytes_per_s for run in comparison.runs if run.report.workers > 1))
    left_out = dict.fromkeys(_architecture(run) for run in comparison.runs if run.is_asynchronous)
    note = f"Without {' and '.join(left_out)}: asynchronous steps are worth less." if left_out else ""
    return [
        scaling_chart(
            _curves(comparison, link, plain.samples_per_s),
            key=f"scaling-{index}",
            title=f"Scaling at {link_rate(link)}" if link else "Scaling",
            note=note,
        )
        for index, link in enumerate(links)
    ]


def _curves(comparison: Comparison, link: float | None, alone: float) -> list[ScalingCurve]:
    measured: dict[str, dict[int, float]] = {}
    for run in comparison.runs:
        if run.report.workers > 1 and run.link_bytes_per_s == link and not run.is_asynchronous:
            measured.setdefault(_architecture(run), {})[run.report.workers] = run.report.samples_per_s / alone
    predicted: dict[str, dict[int, float]] = {}
    for point in comparison.predicted:
        if point.link_bytes_per_s == link:
            predicted.setdefault(point.architecture, {})[point.workers] = point.samples_per_s / alone
    return [_curve(name, points, "measured") for name, points in measured.items()] + [
        _curve(name, points, "predicted") for name, points in predicted.items()
    ]


def _curve(name: str, points: dict[int, float], origin: Literal["measured", "predicted"]) -> ScalingCurve:
    workers = tuple(sorted(points))
    return ScalingCurve(
        label=name,
        origin=origin,
        workers=workers,
        speedup=tuple(points[count] for count in workers),
    )


def _architecture(run: Compared) -> str:
    return Architecture(strategy=run.report.strategy, servers=run.report.servers).name


def _prediction_chart(runs: Sequence[Compared]) -> Chart | None:
    if not runs:
        return None
    names = list(dict.fromkeys(_architecture(run) for run in runs))
    colors = {name: SERIES[index % len(SERIES)] for index, name in enumerate(names)}
    measured = [_MILLI * run.report.step_s.p50 for run in runs]
    ends = (min(measured) / 1.2, max(measured) * 1.2)
    points = [
        Curve(
            what=name,
            color=colors[name],
            x=[_MILLI * run.report.step_s.p50 for run in runs if _architecture(run) == name],
            y=[_MILLI * run.report.predicted.step_s for run in runs if _architecture(run) == name],
            width=0,
            dots=True,
        )
        for name in names
    ]
    right = Curve(what="as measured", color=GREY, x=ends, y=ends, dash="dotted", width=1.5)
    worst = max(runs, key=lambda run: abs(run.report.predicted.step_error))
    return Chart(
        key="predictions",
        title="Predictions beside measurements",
        caption="Predicted against measured time of a step, both in milliseconds and logarithmic; on the dotted line a "
        f"prediction is right. The worst is {worst.name}: {signed_percent(worst.report.predicted.step_error)}.",
        kind="curves",
        height=340,
        data=curves_data([right, *points], Axes(x="measured ms", y="predicted ms", log=True)),
        legend=(*((name, colors[name]) for name in names), ("as measured", GREY)),
    )
