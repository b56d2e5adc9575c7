"""Charts that benchmarks print, and the races that one of them shows."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "time-to-loss"))

from curves import lines, moments, named
from plots import COLOURS, chart


def race(*rows, accuracy=None):
    return {"loss": None if accuracy else 0.5, "accuracy": accuracy, "rows": list(rows)}


def row(strategy, curve, *, reached_s, accuracies=()):
    return {
        "strategy": strategy,
        "reached_s": reached_s,
        "trained_s": curve[-1][0],
        "curve": curve,
        "accuracies": list(accuracies),
    }


def test_a_chart_has_a_value_for_each_place_and_names_its_lines_in_words():
    told = chart("nodes", [2, 4], "seconds", {"AlexNet": [0.25, 0.5], "VGG-16": [1.0, 2.0]})
    assert '    x-axis "nodes" [2, 4]\n    y-axis "seconds" 0 --> 2.1\n' in told
    assert '    line "VGG-16" [1, 2]' in told
    assert told.endswith("Lines: blue AlexNet, orange VGG-16.")
    with pytest.raises(ValueError, match="colours"):
        chart("x", [1], "y", {str(index): [1.0] for index in range(len(COLOURS) + 1)})


def test_moments_are_round_few_and_reach_to_the_last_goal():
    fast, slow = (
        row("auto", [[1.0, 2.0], [9.0, 0.1]], reached_s=3.0),
        row("ring", [[5, 2.0], [90.0, 0.1]], reached_s=38.0),
    )
    assert moments(race(fast, slow)) == [0, 5, 10, 15, 20, 25, 30, 35, 40]
    never = row("ps", [[5, 2.0], [90.0, 1.9]], reached_s=None)
    assert moments(race(fast, never))[-1] == 100


def test_a_line_shows_what_was_last_known():
    first = row("auto", [[1.5, 2.0], [3.2, 0.7], [4.0, 0.4]], reached_s=4.0)
    second = row("ring", [[1.0, 3.0], [8.0, 0.3]], reached_s=8.0)
    shown = lines(race(first, second))
    assert moments(race(first, second)) == list(range(10))
    assert shown["auto"] == [2.0, 2.0, 2.0, 2.0, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4]
    assert shown["ring"] == [3.0] * 8 + [0.3, 0.3]


def test_accuracy_is_in_per_cent_and_nothing_before_it_was_looked_at():
    judged = race(
        row("auto", [[1, 2.0], [6.0, 0.1]], reached_s=4.0, accuracies=[[2.0, 0.5], [4.0, 0.97]]), accuracy=0.97
    )
    at, shown = moments(judged), lines(judged)["auto"]
    assert named(judged) == "accuracy, per cent"
    assert [shown[at.index(moment)] for moment in (0, 1.5, 2, 3.5, 4)] == [0, 0, 50, 50, 97]
