"""What rows of measured cells come to: speed against DDP, whether `auto` chose well, how far predictions were off.

A row is a network on a cluster, as run.py writes it. Nothing is measured here.
"""

from math import ceil
from statistics import mean, median
from typing import Any

Row = dict[str, Any]
CELL = ("net", "nodes", "cores", "link_mbit")
"""What makes two rows the same cell."""
CHOICE_SLACK = 0.10
EVEN_GOALS = {"alexnet": 10.0, "vgg": 4.0, "resnet18": 1.5, "vit": 1.5}
"""Times as fast as DDP on 4 equal nodes at 100 Mbit/s."""
UNEVEN_GOALS = {"alexnet": 2.97, "vgg": 2.97}
"""The same on uneven nodes, at every speed of links."""
LEAST = 1.0
"""Everywhere else."""


def same_cell(one: Row, other: Row) -> bool:
    """Whether both are the same network on the same cluster."""
    return all(one[key] == other[key] for key in CELL)


def merged(before: Row, found: Row) -> Row:
    """Put what was just measured of a cell over what was known of it.

    `runs` says which figures were measured beside each other: each name stands in the last run that had it.
    """
    fresh = {*found["peers_s"], *found["ours"]}
    older = [{**run, "names": [name for name in run["names"] if name not in fresh]} for run in runs_of(before)]
    return with_times(
        {
            **found,
            "peers_s": before["peers_s"] | found["peers_s"],
            "ours": before["ours"] | found["ours"],
            "runs": [run for run in older if run["names"]] + found["runs"],
        }
    )


def runs_of(row: Row) -> list[dict[str, Any]]:
    """Which figures of a row were measured beside each other; a row that does not say was measured in one go."""
    return row.get("runs") or [{"commit": "unknown", "date": "unknown", "names": [*row["peers_s"], *row["ours"]]}]


def with_times(row: Row) -> Row:
    """Return the row with how many times as fast as DDP `auto` is, if both ran."""
    rest = {key: value for key, value in row.items() if key != "times_ddp"}
    times = times_ddp(row).get("auto")
    return rest if times is None else {**rest, "times_ddp": times}


def has_all(row: Row, strategies: list[str]) -> bool:
    """Whether a row knows of each strategy, measured or refused."""
    return all(name in row["ours"] for name in strategies)


def times_ddp(row: Row) -> dict[str, float]:
    """How many times as fast as DistributedDataParallel everything else in the cell was."""
    ddp_s = row["peers_s"].get("ddp")
    others = {name: seconds for name, seconds in row["peers_s"].items() if name != "ddp" and seconds}
    return {name: ddp_s / seconds for name, seconds in (others | measured(row)).items()} if ddp_s else {}


def measured(row: Row) -> dict[str, float]:
    """Seconds of a step under each of our strategies that ran."""
    return {name: each["measured_step_s"] for name, each in row["ours"].items() if "measured_step_s" in each}


def label(row: Row) -> str:
    """Name a cell for people."""
    cores = row["cores"]
    unlike = " : ".join(f"{each / mean(cores):g}" for each in cores) if len(set(cores)) > 1 else ""
    return f"{row['net']}, {unlike or row['nodes']} nodes, {row['link_mbit']} Mbit/s"


def summary(rows: list[Row]) -> dict[str, Any]:
    """All that rows say together."""
    return {
        "times_ddp": [
            {"cell": label(row), **{name: _rounded(x) for name, x in times_ddp(row).items()}} for row in rows
        ],
        "slower_than_ddp": slower_than_ddp(rows),
        "goals": [found for row in rows if (found := _goal(row))],
        "choice": choice(rows),
        "prediction_error": prediction_errors(rows),
    }


def slower_than_ddp(rows: list[Row]) -> dict[str, list[str]]:
    """Cells in which a strategy of ours was slower than DDP, by strategy; those that never were are left out."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, times in times_ddp(row).items():
            if name in row["ours"] and times < LEAST:
                found.setdefault(name, []).append(label(row))
    return found


def _goal(row: Row) -> dict[str, Any] | None:
    """The cell's goal and what `auto` came to; None where either ran not."""
    if (times := times_ddp(row).get("auto")) is None:
        return None
    if len(set(row["cores"])) > 1:
        goal = UNEVEN_GOALS.get(row["net"], LEAST)
    else:
        named = (row["nodes"], row["link_mbit"]) == (4, 100)
        goal = EVEN_GOALS.get(row["net"], LEAST) if named else LEAST
    return {"cell": label(row), "goal": goal, "auto": _rounded(times), "met": times >= goal}


def choice(rows: list[Row]) -> dict[str, Any]:
    """In how many cells `auto` was nearly as fast as the best of our strategies, and where it was not.

    A cell counts when a strategy besides `auto` ran there and `auto` was asked for; where that was refused, it missed.
    Trials of one plan differ by what the machine did: all stand for their median.
    """
    judged = [row for row in rows if "auto" in row["ours"] and set(measured(row)) - {"auto"}]
    misses = [miss for row in judged if (miss := _miss(row))]
    return {
        "slack": CHOICE_SLACK,
        "cells": len(judged),
        "within": len(judged) - len(misses),
        "misses": misses,
    }


SAME_PLAN = ("chunks", "sent_bytes_per_step", "predicted_step_s")
"""Equal in two trials of one plan."""


def plans_s(row: Row) -> dict[str, float]:
    """Seconds of a step of each strategy's plan: the median of all trials of that plan."""
    trials: dict[tuple[Any, ...], list[float]] = {}
    plans = {name: tuple(row["ours"][name][key] for key in SAME_PLAN) for name in measured(row)}
    for name, seconds in measured(row).items():
        trials.setdefault(plans[name], []).append(seconds)
    return {name: median(trials[plan]) for name, plan in plans.items()}


def _miss(row: Row) -> dict[str, Any] | None:
    steps_s = plans_s(row)
    auto_s = steps_s.pop("auto", None)
    best = min(steps_s, key=lambda name: steps_s[name])
    if auto_s is not None and auto_s <= steps_s[best] * (1 + CHOICE_SLACK):
        return None
    return {
        "cell": label(row),
        "auto_s": auto_s,
        "chosen": row["ours"]["auto"].get("strategy"),
        "best": best,
        "best_s": steps_s[best],
        "same_run": any({"auto", best} <= set(run["names"]) for run in runs_of(row)),
    }


def prediction_errors(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """(predicted - measured) / measured: of all trials, and of each strategy that was asked for."""
    errors: dict[str, list[float]] = {"all": []}
    for row in rows:
        for name, each in row["ours"].items():
            if "measured_step_s" in each:
                error = each["predicted_step_s"] / each["measured_step_s"] - 1
                errors["all"].append(error)
                errors.setdefault(name, []).append(error)
    return {name: _spread(each) for name, each in errors.items() if each}


def _spread(errors: list[float]) -> dict[str, Any]:
    """Sizes without their sign, and the worst with it."""
    sizes = sorted(map(abs, errors))
    return {
        "trials": len(errors),
        "median": _rounded(median(sizes)),
        "p95": _rounded(sizes[ceil(0.95 * len(sizes)) - 1]),
        "worst": _rounded(max(errors, key=abs)),
        "median_signed": _rounded(median(errors)),
    }


def _rounded(value: float) -> float:
    return round(value, 4)
