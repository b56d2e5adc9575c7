"""How much faster more workers are: what was measured, and what is predicted far beyond it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nfold.core.text.units import figure
from nfold.view.html.charts import GREY, SERIES, Axes, Chart, Curve, curves_data

_ORIGINS = (("measured", "Measured (dots)"), ("predicted", "Predicted (dashes)"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingCurve:
    """The throughput of one architecture at several sizes."""

    label: str
    """`ring`, `ps, half as many servers`."""
    origin: Literal["measured", "predicted"]
    workers: tuple[int, ...]
    """Ascending."""
    speedup: tuple[float, ...]
    """Throughput over that of one plain worker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """What is known of more workers than a run had."""

    curves: tuple[ScalingCurve, ...] = ()
    note: str = ""
    """Why there is no curve, or what the curves leave out."""


def scaling_chart(
    curves: Sequence[ScalingCurve], *, key: str = "scaling", title: str = "Scaling", note: str = ""
) -> Chart | None:
    """Draw the curves of all architectures; None where no curve has a point.

    Args:
        curves: in any order.
        key: of the chart.
        title: of the chart.
        note: what the curves leave out, for the caption.
    """
    curves = [curve for curve in curves if curve.workers]
    if not curves:
        return None
    most = max(max(curve.workers) for curve in curves)
    labels = list(dict.fromkeys(curve.label for curve in curves))
    colors = {label: SERIES[index % len(SERIES)] for index, label in enumerate(labels)}
    ideal = Curve(what="as fast as there are workers", color=GREY, x=(1, most), y=(1, most), dash="dotted", width=1.5)
    drawn = [ideal, *(_curve(curve, colors[curve.label]) for curve in curves)]
    return Chart(
        key=key,
        title=title,
        caption=f"Throughput over that of one plain worker, both axes logarithmic. {_best_words(curves, note)}",
        kind="curves",
        height=340,
        data=curves_data(drawn, Axes(x="workers", y="times as fast as one worker", log=True)),
        legend=(*((label, colors[label]) for label in labels), ("N workers, N times as fast", GREY)),
    )


def _curve(curve: ScalingCurve, color: str) -> Curve:
    measured = curve.origin == "measured"
    return Curve(
        what=f"{curve.label}, {curve.origin}",
        color=color,
        x=curve.workers,
        y=curve.speedup,
        dash="solid" if measured else "dashed",
        width=1.0 if measured else 2.0,
        dots=measured,
    )


def _best_words(curves: Sequence[ScalingCurve], note: str) -> str:
    words = []
    for origin, verb in _ORIGINS:
        points = [
            (speedup, workers, curve.label)
            for curve in curves
            if curve.origin == origin
            for workers, speedup in zip(curve.workers, curve.speedup, strict=True)
        ]
        if points:
            speedup, workers, label = max(points)
            words.append(f"{verb}: at best {figure(speedup)}x, {label} with {workers:,} workers.")
    return " ".join([*words, note]).rstrip()
