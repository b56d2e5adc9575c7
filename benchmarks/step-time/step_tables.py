"""The tables of README.md, in Markdown, from the rows of result.json."""

from collections.abc import Iterable
from typing import Any

from step_times import CHOICE_SLACK, Row, choice, label, measured, prediction_errors, summary, times_ddp

PEERS = {"ddp": "DDP", "ddp bf16": "DDP, bf16", "pipelining": "pipelining"}
MISSING = "-"


def tables(rows: list[Row]) -> str:
    """Return all tables, each below what it shows; even nodes first, few before many, slow links before fast ones."""
    rows = sorted(rows, key=lambda row: (len(set(row["cores"])) > 1, row["nodes"], row["link_mbit"]))
    parts = [seconds_table(rows), times_table(rows), *judgement(rows), error_table(rows)]
    return "\n\n".join(part for part in parts if part)


def seconds_table(rows: list[Row]) -> str:
    """Seconds of a step of the peers and of `auto`."""
    heads = [*PEERS.values(), "`auto`", "its plan", "predicted", "times DDP"]
    return "Seconds of a step:\n\n" + _table(["", *heads], ([label(row), *_seconds(row)] for row in rows))


def _seconds(row: Row) -> list[str]:
    auto = row["ours"].get("auto", {})
    chunks = f", {auto['chunks']} chunks" if auto.get("chunks", 1) > 1 else ""
    plan = f"{auto['strategy']}{chunks}" if "strategy" in auto else auto.get("refused") or MISSING
    return [
        *(_number(row["peers_s"].get(peer)) for peer in PEERS),
        _number(auto.get("measured_step_s")),
        plan,
        _number(auto.get("predicted_step_s")),
        _number(times_ddp(row).get("auto")),
    ]


def times_table(rows: list[Row]) -> str:
    """Times as fast as DDP: everything, the best of ours in bold."""
    names = list(dict.fromkeys(name for row in rows for name in row["ours"]))
    heads = ["", *(f"`{name}`" for name in names)]
    return "Times as fast as DDP:\n\n" + _table(heads, ([label(row), *_times(row, names)] for row in rows))


def _times(row: Row, names: list[str]) -> list[str]:
    times, ran = times_ddp(row), measured(row)
    best = min(ran, key=lambda name: ran[name], default=None)
    told = {name: f"**{_number(times.get(name))}**" if name == best else _number(times.get(name)) for name in ran}
    return [told.get(name, "refused" if name in row["ours"] else MISSING) for name in names]


def judgement(rows: list[Row]) -> Iterable[str]:
    """Whether goals were met, and how `auto` chose."""
    goals = summary(rows)["goals"]
    if goals:
        yield f"Goals met in {sum(each['met'] for each in goals)} of {len(goals)} cells." + "".join(
            f" Missed: {each['cell']}, {_number(each['auto'])} of {each['goal']:g} times."
            for each in goals
            if not each["met"]
        )
    chosen = choice(rows)
    if chosen["cells"]:
        yield (
            f"`auto` was within {CHOICE_SLACK:.0%} of the best measured strategy in {chosen['within']} of "
            f"{chosen['cells']} cells ({chosen['within'] / chosen['cells']:.0%})."
        )
    if chosen["misses"]:
        heads = ["missed", "`auto`", "its plan", "best", "", "same run"]
        yield _table(heads, ([*_missed(miss)] for miss in chosen["misses"]))


def _missed(miss: dict[str, Any]) -> list[str]:
    return [
        miss["cell"],
        _number(miss["auto_s"]),
        miss["chosen"] or MISSING,
        miss["best"],
        _number(miss["best_s"]),
        "yes" if miss["same_run"] else "no",
    ]


def error_table(rows: list[Row]) -> str:
    """How far predictions of the step's time were off."""
    heads = ["prediction error", "trials", "median", "p95", "worst", "median with its sign"]
    found = prediction_errors(rows)
    return _table(
        heads,
        (
            [
                name if name == "all" else f"`{name}`",
                str(each["trials"]),
                f"{each['median']:.0%}",
                f"{each['p95']:.0%}",
                f"{each['worst']:+.0%}",
                f"{each['median_signed']:+.0%}",
            ]
            for name, each in found.items()
        ),
    )


def _table(heads: list[str], lines: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"
