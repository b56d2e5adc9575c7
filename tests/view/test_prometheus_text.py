"""Figures as Prometheus reads them."""

import math

from nfold.view.prometheus_text import Family, prometheus_text


def test_a_figure_is_a_line_with_its_labels():
    steps = Family("steps_total", "counter", "Steps done.", {(): 3})
    ranks = Family("memory_bytes", "gauge", "Resident.", {(("rank", "0"), ("node", "n1")): 0.5})
    assert prometheus_text([steps, ranks]) == (
        "# HELP steps_total Steps done.\n# TYPE steps_total counter\nsteps_total 3\n"
        '# HELP memory_bytes Resident.\n# TYPE memory_bytes gauge\nmemory_bytes{rank="0",node="n1"} 0.5\n'
    )


def test_names_of_others_break_no_line():
    text = prometheus_text([Family("metric", "gauge", "a\\b\nc", {(("name", 'a"} 1\n\\b'),): 1.0})])
    assert text.splitlines() == [
        "# HELP metric a\\\\b\\nc",
        "# TYPE metric gauge",
        'metric{name="a\\"} 1\\n\\\\b"} 1.0',
    ]


def test_what_is_no_number_has_its_own_words_and_what_is_unknown_has_no_line():
    values = {(("name", str(value)),): value for value in (math.nan, math.inf, -math.inf)}
    text = prometheus_text([Family("metric", "gauge", "", values), Family("loss", "gauge", "", {})])
    assert [line.split(" ")[1] for line in text.splitlines()[2:]] == ["NaN", "+Inf", "-Inf"]
