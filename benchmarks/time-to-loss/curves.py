"""What races came to over time, at the same moments for every strategy: for a chart."""

from itertools import takewhile
from typing import Any

MOST_PLACES = 16
STEPS_OF_AXES = (1, 2, 5)


def moments(race: dict[str, Any]) -> list[float]:
    """Return round moments from 0 until everyone has come to the goal, or has ended without."""
    end_s = max(row["trained_s"] if row["reached_s"] is None else row["reached_s"] for row in race["rows"])
    sizes_s = (size * 10**power for power in range(-2, 7) for size in STEPS_OF_AXES)
    step_s = next(size for size in sizes_s if end_s / size <= MOST_PLACES - 2)
    return [round(index * step_s, 2) for index in range(int(end_s / step_s) + 2)]


def lines(race: dict[str, Any]) -> dict[str, list[float]]:
    """Return what each strategy had come to at those moments: accuracy in per cent where that is the goal, else loss.

    A line shows what was last known. It stays after a run's end, and begins with the first loss, or with no accuracy.
    """
    return {row["strategy"]: [_at(moment, race, row) for moment in moments(race)] for row in race["rows"]}


def _at(moment_s: float, race: dict[str, Any], row: dict[str, Any]) -> float:
    judged = race["accuracy"] is not None
    points = [(at_s, 100 * value) for at_s, value in row["accuracies"]] if judged else row["curve"]
    before = 0.0 if judged else points[0][1]
    known = list(takewhile(lambda point: point[0] <= moment_s, points))
    return float(known[-1][1] if known else before)


def named(race: dict[str, Any]) -> str:
    """What the values are."""
    return "accuracy, per cent" if race["accuracy"] is not None else "loss"
