"""The traced steps task by task, a row for each lane of each rank."""

from collections.abc import Mapping, Sequence
from typing import Any

from nfold.core.text.units import count, size
from nfold.core.trace import StepTrace
from nfold.view.html.charts import BLUE, DEEP_BLUE, GREEN, GREY, ORANGE, PURPLE, ROSE, Chart
from nfold.view.timeline import Activity, Bar, Lane, timeline

_LOOKS: dict[Activity, tuple[str, str]] = {
    "input": ("input", ROSE),
    "forward": ("forward", BLUE),
    "backward": ("backward", DEEP_BLUE),
    "update": ("update", GREEN),
    "wait": ("waiting for messages", GREY),
    "send": ("sending", ORANGE),
    "receive": ("receiving", PURPLE),
}
_LANES: tuple[Lane, ...] = ("compute", "send", "receive")
_ROWS_PER_RANK = len(_LANES) + 0.6
_MOST_BARS = 4000
_MOST_RANKS = 16
_STEPS_SHOWN_FIRST = 2
_MILLI = 1e3


def timeline_chart(steps: Sequence[StepTrace], nodes: Sequence[str]) -> Chart | None:
    """Draw as many of the traced steps as fit a page of bounded size; None when there are none."""
    shown = _fitting(steps)
    every = [bar for bar in timeline(shown, nodes).bars if bar.rank < _MOST_RANKS]
    bars = every[:_MOST_BARS]
    if not bars:
        return None
    rows = {rank: -index * _ROWS_PER_RANK for index, rank in enumerate(sorted({bar.rank for bar in bars}))}
    return Chart(
        key="timeline",
        title="Timeline",
        caption=f"{count(len(shown), 'step')} on {count(len(rows), 'rank')}, in milliseconds since the first of them "
        "began. Drag the window in the strip below the picture along it, or use the tools above to zoom."
        + _left_out(len(nodes), len(every) - len(bars)),
        kind="timeline",
        height=80 + len(rows) * 64,
        data=_data(bars, rows),
        legend=tuple(_LOOKS[name] for name in _LOOKS if any(bar.activity == name for bar in bars)),
    )


def _fitting(steps: Sequence[StepTrace]) -> list[StepTrace]:
    """Take whole steps, the first ones, while their bars fit; always one."""
    fitting: list[StepTrace] = []
    num_bars = 0
    for step in steps:
        num_bars += sum(1 for span in step.spans if span.rank < _MOST_RANKS)
        if fitting and num_bars > _MOST_BARS:
            break
        fitting.append(step)
    return fitting


def _left_out(num_ranks: int, num_bars: int) -> str:
    ranks = f" Ranks {_MOST_RANKS} to {num_ranks - 1} are left out." if num_ranks > _MOST_RANKS else ""
    return ranks + (f" The last {num_bars} bars are left out." if num_bars else "")


def _data(bars: Sequence[Bar], rows: Mapping[int, float]) -> dict[str, Any]:
    first_steps = sorted({bar.step for bar in bars})[:_STEPS_SHOWN_FIRST]
    labels = [
        {"y": row - depth, "label": f"rank {rank}" if lane == "compute" else lane}
        for rank, row in rows.items()
        for depth, lane in enumerate(_LANES)
    ]
    activities = [[bar for bar in bars if bar.activity == activity] for activity in _LOOKS]
    return {
        "rows": labels,
        "bottom": min(rows.values()) - len(_LANES),
        "window_ms": round(max(bar.end_s for bar in bars if bar.step in first_steps) * _MILLI, 4),
        "end_ms": round(max(bar.end_s for bar in bars) * _MILLI, 4),
        "activities": [_columns(mine, rows) for mine in activities if mine],
    }


def _columns(bars: Sequence[Bar], rows: Mapping[int, float]) -> dict[str, Any]:
    """Return the bars of one activity by columns: names of fields would be most of the page."""
    activity = bars[0].activity
    sent = {"payload": [size(bar.payload_bytes) for bar in bars]} if activity == "send" else {}
    return {
        "color": _LOOKS[activity][1],
        "overlaps": activity in ("send", "receive"),
        "row": [round(rows[bar.rank] - _LANES.index(bar.lane), 1) for bar in bars],
        "begin": [round(bar.start_s * _MILLI, 4) for bar in bars],
        "end": [round(bar.end_s * _MILLI, 4) for bar in bars],
        "step": [bar.step for bar in bars],
        "what": [f"rank {bar.rank}: {bar.name}" for bar in bars],
        **sent,
    }
