"""Bars and curves of one run: where each node's steps go, how the loss fell, how stale gradients were."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from nfold.analysis.measured.bound_waits import told_apart
from nfold.analysis.measured.breakdown import peer_waits, worker_steps
from nfold.analysis.measured.gradient_ages import mean_age
from nfold.core.member_event import MemberEvent
from nfold.core.text.units import count, figure, percent, seconds
from nfold.core.trace import Trace
from nfold.view.html.charts import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    ROSE,
    TEAL,
    Axes,
    Chart,
    Curve,
    curves_data,
    stack_data,
    thinned,
)

_MILLI = 1e3
_WARM_UP_STEPS = 5
_MOST_POINTS = 2000
_MOST_NODES = 40
_MOST_MARKS = 100
_PARTS = (
    ("compute", BLUE),
    ("communication", ORANGE),
    ("waiting for a peer", GREY),
    ("input", ROSE),
    ("update", GREEN),
    ("other", TEAL),
    ("serving", PURPLE),
    ("waiting for messages", BROWN),
)
"""The last two are of dedicated servers alone."""


def nodes_chart(trace: Trace, nodes: Sequence[str], held_s: Mapping[int, float]) -> Chart | None:
    """Draw what a mean step goes to on each node, over its workers and over its servers; None if nothing was measured.

    Half of the bars are kept for workers where there are too many.

    Args:
        trace: of the run.
        nodes: of each rank.
        held_s: what each worker waited for slower ones because staleness is bounded, seconds per step.
    """
    if not trace.parts:
        return None
    parts, served = node_parts(trace, nodes, held_s), server_parts(trace, nodes)
    bars = {name: parts[name] for name in list(parts)[: max(_MOST_NODES // 2, _MOST_NODES - len(served))]}
    bars |= {name: served[name] for name in list(served)[: _MOST_NODES - len(bars)]}
    stacked = [
        (what, color, [bar.get(what, 0.0) * _MILLI for bar in bars.values()])
        for what, color in _PARTS
        if any(bar.get(what) for bar in bars.values())
    ]
    slowest = max(parts, key=lambda node: sum(parts[node].values()) - parts[node]["waiting for a peer"])
    num_left_out = len(parts) + len(served) - len(bars)
    left_out = f" {count(num_left_out, 'more bar')} would not fit." if num_left_out else ""
    servers = (
        " Dedicated servers have bars of their own; serving is summing gradients and passing on." if served else ""
    )
    return Chart(
        key="nodes",
        title="Where each node's steps go",
        caption=f"Mean of a step over the workers of a node, in milliseconds. {slowest} works longest: "
        f"{seconds(parts[slowest]['compute'])} of computing in each step.{servers}{left_out}",
        kind="stack",
        height=90 + 36 * len(bars),
        data=stack_data(list(bars), stacked, "ms of each step"),
        legend=tuple((what, color) for what, color, _ in stacked),
    )


def node_parts(trace: Trace, nodes: Sequence[str], held_s: Mapping[int, float]) -> dict[str, dict[str, float]]:
    """Return mean seconds of a worker's step by node and part.

    Args:
        trace: of the run.
        nodes: node of each rank.
        held_s: as for `nodes_chart`.

    Raises:
        InternalError: nothing was measured.
    """
    collected: dict[str, list[dict[str, float]]] = defaultdict(list)
    held: dict[str, list[float]] = defaultdict(list)
    for step in worker_steps(trace, _WARM_UP_STEPS):
        for parts, wait_s in zip(step, peer_waits(step, is_asynchronous=trace.is_asynchronous), strict=True):
            held[nodes[parts.rank]].append(held_s.get(parts.rank, 0.0))
            collected[nodes[parts.rank]].append(
                {
                    "compute": parts.compute_s,
                    "communication": parts.communication_s - wait_s,
                    "waiting for a peer": wait_s,
                    "input": parts.input_s,
                    "update": parts.update_s,
                    "other": max(0.0, parts.other_s),
                }
            )
    return {
        node: _with_held(_means(collected[node]), fmean(held[node]))
        for node in dict.fromkeys(nodes)
        if node in collected
    }


def _with_held(parts: dict[str, float], held_s: float) -> dict[str, float]:
    exposed_s, peer_wait_s = told_apart(parts["communication"], parts["waiting for a peer"], held_s)
    return {**parts, "communication": exposed_s, "waiting for a peer": peer_wait_s}


def server_parts(trace: Trace, nodes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return mean seconds of a dedicated server's step by node and part; the names say that servers are meant.

    Raises:
        InternalError: nothing was measured.
    """
    servers = {usage.rank for usage in trace.usage if usage.role == "server"}
    first_step = worker_steps(trace, _WARM_UP_STEPS)[0][0].step
    collected: dict[str, list[dict[str, float]]] = defaultdict(list)
    for parts in trace.parts:
        if parts.rank in servers and parts.step >= first_step:
            collected[f"{nodes[parts.rank]}, server"].append(
                {
                    "serving": max(0.0, parts.step_s - parts.communication_s - parts.update_s),
                    "update": parts.update_s,
                    "waiting for messages": parts.communication_s,
                }
            )
    return {bar: _means(rows) for bar, rows in collected.items()}


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {what: fmean(row[what] for row in rows) for what in rows[0]}


def loss_chart(history: Sequence[Mapping[str, Any]], events: Sequence[MemberEvent] = ()) -> Chart | None:
    """Draw the loss of every step, its running mean, and the losses among the evaluations; None without steps.

    Args:
        history: of the run.
        events: that changed who trains; a mark each.
    """
    points = [(entry["step"], entry["loss"]) for entry in history if not entry["metrics"]]
    if not points:
        return None
    kept = thinned(len(points), _MOST_POINTS)
    means = running_means([loss for _, loss in points], max(1, len(points) // 40))
    steps = [points[index][0] for index in kept]
    each = Curve(what="each step", color=BLUE, x=steps, y=[points[i][1] for i in kept], width=1, alpha=0.35)
    mean = Curve(what="running mean", color=BLUE, x=steps, y=[means[i] for i in kept], width=2.5)
    evaluated = _evaluated(history)
    return Chart(
        key="loss",
        title="Loss",
        caption=f"Training loss of {count(len(points), 'step')}: {figure(points[0][1])} at first, "
        f"{figure(points[-1][1])} at last.{_marked(events)}",
        kind="curves",
        height=300,
        data=curves_data([each, mean, *evaluated], Axes(x="step", y="loss"), _marks(events)),
        legend=(("training, each step and running mean", BLUE), *((curve.what, curve.color) for curve in evaluated)),
    )


def _marks(events: Sequence[MemberEvent]) -> list[tuple[float, str]]:
    """Return a mark for each event, before its first step; of very many, some."""
    return [(events[i].step - 0.5, events[i].told) for i in thinned(len(events), _MOST_MARKS)]


def _marked(events: Sequence[MemberEvent]) -> str:
    if not events:
        return ""
    shown = len(thinned(len(events), _MOST_MARKS))
    some = "" if shown == len(events) else f" (of {len(events)})"
    return f" {count(shown, 'upright line')}{some}: where hosts came or went, as the table says."


def running_means(values: Sequence[float], reach: int) -> list[float]:
    """Return the mean of each value and the ones before it, `reach` in all. O(values)."""
    means, total = [], 0.0
    for index, value in enumerate(values):
        total += value - (values[index - reach] if index >= reach else 0.0)
        means.append(total / min(index + 1, reach))
    return means


def _evaluated(history: Sequence[Mapping[str, Any]]) -> list[Curve]:
    names = dict.fromkeys(name for entry in history for name in entry["metrics"] if "loss" in name)
    curves = []
    for name, color in zip(names, (ORANGE, PURPLE), strict=False):
        entries = [entry for entry in history if entry["metrics"].get(name) is not None]
        steps = [entry["step"] for entry in entries]
        curves.append(
            Curve(what=name, color=color, x=steps, y=[e["metrics"][name] for e in entries], width=1, dots=True)
        )
    return curves


def staleness_chart(applied: Mapping[int, int]) -> Chart | None:
    """Draw how old gradients were when they were applied; None for a synchronous run, which counts none.

    Args:
        applied: gradients by staleness in updates.
    """
    if not applied:
        return None
    ages, fresh = sorted(applied), applied.get(0, 0) / sum(applied.values())
    return Chart(
        key="staleness",
        title="Staleness",
        caption="How many updates others had made between the reading of the parameters and the applying of the "
        f"gradient: {figure(mean_age(applied))} on average, at most {ages[-1]}; {percent(fresh)} were fresh.",
        kind="columns",
        height=260,
        data={
            "x": ages,
            "y": [applied[age] for age in ages],
            "color": BLUE,
            "x_label": "updates in between",
            "y_label": "gradients",
        },
    )
