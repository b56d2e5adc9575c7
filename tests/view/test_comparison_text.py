"""A comparison as text and as a page."""

import html
import json
import re
from dataclasses import replace

import pytest

from nfold.core.findings.comparison import Comparison, Throughput, Winner
from nfold.view.comparison_text import conclusion_text, takeover_sentences, winner_sentences
from nfold.view.html import compare_page


def charts(page):
    found = re.findall(r'<script type="application/json" class="chart-data">(.*?)</script>', page, re.DOTALL)
    return {chart["key"]: chart for chart in map(json.loads, found)}


def words(page):
    body = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_winners_are_said_by_link(comparison):
    assert winner_sentences(comparison()) == [
        "At 50 Mbit/s: ring with 2 workers (1.29x ps).",
        "At 1 Gbit/s: ps with 2 workers (1.03x ring).",
    ]


def test_who_learns_first_is_said_by_link_and_the_plain_run_takes_part(comparison):
    made = comparison()
    times_s = (30.0, 40.0, 50.0, 20.0, None)
    runs = tuple(replace(run, time_to_loss_s=time_s) for run, time_s in zip(made.runs, times_s, strict=True))

    assert winner_sentences(replace(made, runs=runs))[-2:] == [
        "At 50 Mbit/s, single is the first to reach a loss of 0.4: 30.0 s; then ring x2, 40.0 s.",
        "At 1 Gbit/s, ring x2 is the first to reach a loss of 0.4: 20.0 s; then single, 30.0 s.",
    ]


def test_where_more_workers_do_not_pay_that_is_said(comparison):
    slow = comparison()
    slow = replace(slow, runs=slow.runs[:3], winners=slow.winners[:1])

    assert winner_sentences(slow)[-1] == (
        "One worker alone is faster than all of them: 1829 samples/s against 900 at best."
    )


def test_asynchronous_steps_are_not_held_against_the_plain_run(comparison):
    made = comparison()
    runs = tuple(replace(run, is_asynchronous=run.link_bytes_per_s == 125e6) for run in made.runs)

    assert winner_sentences(replace(made, runs=runs, winners=made.winners[:1]))[1] == (
        "One worker alone is faster than all of the synchronous ones: 1829 samples/s against 900 at best."
    )


def test_a_takeover_says_whether_it_was_measured(comparison):
    assert takeover_sentences(comparison()) == [
        "At 50 Mbit/s, ps takes over from ring between 4 and 64 workers (predicted)."
    ]


def test_where_one_always_wins_that_is_said():
    won = tuple(
        Winner(
            link_bytes_per_s=None, workers=workers, architecture="ring", lead=1.5, second="ps", ranked=("ring", "ps")
        )
        for workers in (2, 4)
    )

    assert takeover_sentences(Comparison(runs=(), winners=won)) == ["Nothing takes over from ring up to 4 workers."]
    assert takeover_sentences(Comparison(runs=(), winners=won[:1])) == []


def test_who_has_no_figure_at_a_size_does_not_lose_there():
    met = Winner(
        link_bytes_per_s=None, workers=2, architecture="ring", lead=1.5, second="ps", ranked=("ring", "ps", "hybrid")
    )
    alone = [replace(met, workers=workers, ranked=("ring", "ps"), origin="predicted") for workers in (8, 16)]
    predicted = tuple(
        Throughput(architecture=name, workers=8, link_bytes_per_s=None, samples_per_s=9.0, origin="predicted")
        for name in ("ring", "ps")
    )
    left_out = "Not predicted beyond the sizes that were measured, so not ranked there: hybrid."

    twice = Comparison(runs=(), winners=(met, replace(met, workers=4), *alone), predicted=predicted)
    assert takeover_sentences(twice) == ["Nothing takes over from ring up to 4 workers.", left_out]
    assert takeover_sentences(Comparison(runs=(), winners=(met, *alone), predicted=predicted)) == [left_out]


def test_a_takeover_between_neighbouring_sizes_is_at_one(comparison):
    made = comparison()
    (taken,) = made.takeovers
    at = replace(made, takeovers=(replace(taken, last_workers=36, workers=37),))

    assert takeover_sentences(at) == ["At 50 Mbit/s, ps takes over from ring at 37 workers (predicted)."]


def test_even_architectures_are_called_even():
    won = (Winner(link_bytes_per_s=None, workers=2, architecture="ring", lead=1.01, second="ps"),)

    assert winner_sentences(Comparison(runs=(), winners=won)) == [
        "On these links: ring and ps are even with 2 workers."
    ]


def test_the_race_is_a_table(comparison):
    lines = conclusion_text(comparison()).splitlines()

    assert "an epoch" in lines[1]
    assert "costs" in lines[1]
    assert "to loss 0.4" in lines[1]
    assert [cell.strip() for cell in lines[4].split("|")[2:5]] == ["1.50 s", "0.0042", "12.0 s"]
    assert [cell.strip() for cell in lines[5].split("|")[2:5]] == ["1.50 s", "0.0042", "never"]


def test_figures_that_no_run_has_take_no_column():
    assert conclusion_text(Comparison(runs=())).strip() == ""


def test_the_page_says_who_wins_first(comparison):
    page = compare_page(comparison())
    text = words(page)

    assert text.index("At 50 Mbit/s: ring with 2 workers") < text.index("takes over") < text.index("Every run")
    assert charts(page).keys() == {"parts", "scaling-0", "scaling-1", "bytes", "memory", "cost", "race", "predictions"}
    assert len(page.encode()) < 2_000_000


def test_the_page_draws_measured_and_predicted_throughput_over_the_plain_run(comparison):
    drawn = charts(compare_page(comparison()))["scaling-0"]["data"]["curves"]

    ring = {curve["what"]: (curve["x"], curve["y"]) for curve in drawn if curve["what"].startswith("ring")}
    assert ring["ring, measured"] == ([2], [pytest.approx(900 / 1828.6, rel=1e-4)])
    assert ring["ring, predicted"] == (
        [4, 64],
        [pytest.approx(1500 / 1828.6, rel=1e-4), pytest.approx(1600 / 1828.6, rel=1e-4)],
    )


def test_hostile_names_stay_text_on_the_page(comparison):
    hostile = "<img src=x onerror=alert(1)></script>"

    page = compare_page(comparison(hostile))

    assert "<img" not in page
    assert page.count("</script>") == 3 + len(charts(page))


def test_a_comparison_without_a_plain_run_has_no_scaling(comparison):
    made = comparison()
    bare = Comparison(runs=made.runs[1:], winners=made.winners)

    assert charts(compare_page(bare)).keys() == {"parts", "bytes", "memory", "cost", "race", "predictions"}


def test_the_page_draws_bytes_memory_money_and_the_race_to_a_loss(comparison):
    drawn = charts(compare_page(comparison()))

    def bars(key):
        (part,) = drawn[key]["data"]["parts"]
        return dict(zip(drawn[key]["data"]["names"], part["values"], strict=True))

    assert bars("bytes")["ring x2, 6250000.0"] == 6.0
    assert bars("memory")["single"] == 300.0
    assert bars("cost") == dict.fromkeys(list(bars("bytes"))[1:], 0.0042), "the plain run's node has no price"
    curves = {curve["what"]: (curve["x"], curve["y"]) for curve in drawn["race"]["data"]["curves"]}
    assert curves["ring x2, 6250000.0"] == ([2.0, 1.8, 14.0], [2.3, 0.9, 0.35])
    assert curves["loss 0.4"] == ([0.0, 14.0], [0.4, 0.4])
    assert "First to reach 0.4: ring x2" in words(compare_page(comparison()))


def test_what_no_run_has_is_not_drawn(comparison):
    runs = tuple(replace(run, cost_per_epoch=None, loss_over_time=()) for run in comparison().runs)

    assert charts(compare_page(replace(comparison(), runs=runs))).keys().isdisjoint({"cost", "race"})


def test_asynchronous_runs_take_no_part_in_the_scaling(comparison):
    made = comparison()
    runs = tuple(replace(run, is_asynchronous=run.report.strategy == "ps") for run in made.runs)
    page = compare_page(replace(made, runs=runs, predicted=()))

    assert [curve["what"] for curve in charts(page)["scaling-0"]["data"]["curves"]][1:] == ["ring, measured"]
    assert "Without ps: asynchronous steps are worth less." in words(page)
    assert charts(page)["race"]["data"]["curves"][1]["what"].startswith("ps x2"), "it races all the same"


def test_a_page_of_very_many_runs_stays_small(comparison):
    made = comparison()
    many = tuple(
        replace(made.runs[1], name=f"ring x{index}", loss_over_time=((1.5, 0.25),) * 100) for index in range(900)
    )
    page = compare_page(replace(made, runs=(made.runs[0], *many)))

    assert len(page.encode()) < 2_000_000
    assert "701 more runs are left out; compare.json has them." in words(page)
    assert "880 more runs would not fit." in words(page)
    assert charts(page).keys() >= {"parts", "race", "bytes", "predictions"}
