"""What the runs of a comparison cost beside time: bytes, memory and money, and how long each took to learn."""

from collections.abc import Sequence
from itertools import cycle

from nfold.core.findings.comparison import Compared, Comparison
from nfold.core.text.units import count, figure, seconds, size
from nfold.view.html.charts import BLUE, GREY, SERIES, Axes, Chart, Curve, Dash, Legend, curves_data, stack_data

_MEGA, _MEBI = 1e6, 1 << 20
_MOST_RACERS = 20
_DASHES: tuple[Dash, Dash] = ("solid", "dashed")


def cost_charts(runs: Sequence[Compared]) -> list[Chart]:
    """Return a chart of bars for each cost that some run has."""
    sent = [run.report.sent_bytes_per_step for run in runs]
    memory = [run.report.peak_rss_bytes for run in runs]
    paid = [run for run in runs if run.cost_per_epoch is not None]
    costs = [run.cost_per_epoch or 0.0 for run in paid]
    charts = [
        _bars("bytes", "Bytes of a step", f"Payload that all ranks together send, in MB; at most {_most(sent)}.",
              runs, [num_bytes / _MEGA for num_bytes in sent], "MB a step"),
        _bars("memory", "Memory", f"Peak of the rank that needs most, in MiB; at most {_most(memory)}.",
              runs, [num_bytes / _MEBI for num_bytes in memory], "MiB"),
        _bars("cost", "Money for an epoch", "Prices of the nodes in use over the time of an epoch, as declared.",
              paid, costs, "for an epoch"),
    ]  # fmt: skip
    return [chart for chart in charts if chart is not None]


def _most(num_bytes: Sequence[int]) -> str:
    return size(max(num_bytes, default=0))


def _bars(
    key: str, title: str, caption: str, runs: Sequence[Compared], values: Sequence[float], unit: str
) -> Chart | None:
    if not any(values):
        return None
    return Chart(
        key=key,
        title=title,
        caption=caption,
        kind="stack",
        height=90 + 30 * len(runs),
        data=stack_data([run.name for run in runs], [(unit, BLUE, values)], unit),
    )


def race_chart(comparison: Comparison) -> Chart | None:
    """Draw the loss of every run over its seconds of training, and the loss that they race to; None without losses.

    It is what asynchronous runs are judged by.
    """
    racing = [run for run in comparison.runs if run.loss_over_time]
    if not racing:
        return None
    shown = racing[:_MOST_RACERS]
    looks = list(zip(cycle(SERIES), _dashes(len(shown)), strict=False))
    curves = [_race(run, color, dash) for run, (color, dash) in zip(shown, looks, strict=False)]
    target, goal = _target(comparison, max(curve.x[-1] for curve in curves))
    left_out = f" {count(len(racing) - len(shown), 'more run')} would not fit." if len(racing) > len(shown) else ""
    names: Legend = tuple((curve.what, curve.color) for curve in curves)
    return Chart(
        key="race",
        title="Loss over time",
        caption=f"Mean training loss of some steps by seconds of training. {_first(comparison)}{left_out}".strip(),
        kind="curves",
        height=360,
        data=curves_data([*curves, *target], Axes(x="seconds of training", y="loss")),
        legend=(*names, *goal),
    )


def _dashes(num_runs: int) -> list[Dash]:
    """Each colour serves twice."""
    return [_DASHES[index // len(SERIES)] for index in range(num_runs)]


def _race(run: Compared, color: str, dash: Dash) -> Curve:
    at_s, losses = zip(*run.loss_over_time, strict=True)
    return Curve(what=run.name, color=color, x=at_s, y=losses, dash=dash)


def _target(comparison: Comparison, last_s: float) -> tuple[list[Curve], Legend]:
    if comparison.target_loss is None:
        return [], ()
    words = f"loss {figure(comparison.target_loss)}"
    ends = (comparison.target_loss, comparison.target_loss)
    return [Curve(what=words, color=GREY, x=(0.0, last_s), y=ends, dash="dotted", width=1.5)], ((words, GREY),)


def _first(comparison: Comparison) -> str:
    times = [(run.time_to_loss_s, run.name) for run in comparison.runs if run.time_to_loss_s is not None]
    if not times or comparison.target_loss is None:
        return ""
    first_s, name = min(times)
    return f"First to reach {figure(comparison.target_loss)}: {name}, after {seconds(first_s)}."
