"""Tables against golden texts."""

from dataclasses import replace

import pytest

from nfold.core.plan import Asynchrony, Rejected, Unpredicted
from nfold.view import Look, compare_table, plan_table


def test_compare(single, server, golden):
    assert compare_table([single, server]) == golden("compare")


def test_compare_breaks_into_blocks_that_fit(single, server):
    text = compare_table([single, server] * 4, look=Look(width=80))
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("samples/s") == 3
    assert text.count("1829") == 4


def test_figures_that_no_run_has_take_no_row(single):
    text = compare_table([single])
    assert "bus bandwidth" not in text
    assert "peak memory, server" not in text


def test_a_metric_that_is_no_number_has_a_row(single, server):
    odd = replace(single, metrics={"f1": None, "recall": 0.5})
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in compare_table([odd, server]).splitlines()]
    assert ["f1", "nan", "-"] in rows
    assert ["recall", "0.5", "-"] in rows


def test_columns_can_be_named(single, server):
    assert "plain loop" in compare_table([single, server], names=["plain loop", "ps"])


def test_plan(plan, golden):
    assert plan_table(plan) == golden("plan")


@pytest.mark.parametrize(
    ("threads", "text"), [((1, 1), "1 thread a rank"), ((2, 2), "2 threads a rank"), ((4, 1), "1 to 4 threads a rank")]
)
def test_a_plan_tells_the_threads_that_decide_the_last_bits(plan, threads, text):
    assert f"in 4 chunks, {text}; predicted:" in plan_table(replace(plan, threads=threads))
    assert f"in 1 chunk, {text}" in plan_table(replace(plan, threads=threads, chunks=1))


def test_a_plan_tells_what_a_user_should_know_of_it(plan):
    assert "note: found without" in plan_table(replace(plan, notes=("found without",)))
    assert "note:" not in plan_table(plan)


def test_a_plan_tells_how_evenly_the_work_is_divided(plan):
    text = plan_table(replace(plan, loads_s=(0.01, 0.02, 0.06, 0.03)))
    assert "The heaviest rank, 2, computes 60.0 ms a step, 2.00x the average." in text
    assert "heaviest" not in plan_table(replace(plan, asynchrony=Asynchrony(bound=None)))
    everything = {name: (1,) * plan.chunks for name in plan.placement.owners}
    alone = replace(plan, placement=replace(plan.placement, owners=everything), loads_s=(0.0, 0.01, 0.0, 0.0))
    assert "heaviest" not in plan_table(alone), "who has nothing to do is not compared"


@pytest.mark.parametrize("color", [False, True])
def test_a_terminal_gets_rules(plan, color):
    text = plan_table(plan, look=Look(width=100, is_terminal=True, color=color))
    assert "───" in text
    assert ("\x1b[3" in text) is color, "ranks have colours, all else only bold heads"


def test_plain_text_holds_no_control_characters(plan, single, server):
    text = plan_table(plan) + compare_table([single, server])
    assert all(character == "\n" or character.isprintable() for character in text)


def test_a_plan_shows_the_best_proposal_of_each_strategy_and_says_how_many_more_there_are(plan):
    def lost(strategy, step_s, why):
        return Rejected(strategy=strategy, predicted=replace(plan.predicted, step_s=step_s), why=why, chunks=2)

    never = Rejected(strategy="ssp", predicted=Unpredicted(), why="ask for it")
    many = (lost("pipeline", 0.9, "slow"), lost("pipeline", 0.5, "fast"), lost(plan.strategy, 1.0, "other cut"), never)
    made = replace(plan, rejected=many)
    brief, whole = plan_table(made), plan_table(made, shows_all=True)
    assert ("fast" in brief, "slow" in brief, "other cut" in brief, "ask for it" in brief) == (True, False, False, True)
    assert "\n2 more proposals of these strategies: --all" in brief
    assert all(why in whole for why in ("fast", "slow", "other cut", "ask for it"))
    assert "--all" not in whole


@pytest.mark.parametrize("value", [3e-7, 4.2e-5])
def test_small_losses_and_metrics_keep_their_digits(single, value):
    text = compare_table([replace(single, final_loss=value, metrics={"error": value})])
    assert text.count(f"{value:.4g}") == 2


def test_a_metric_that_is_called_as_a_figure_hides_none(single):
    text = compare_table([replace(single, metrics={"efficiency": 0.25, "predicted step": 7.5})])
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines() if "|" in line]
    for name, value in (("efficiency", "0.25"), ("predicted step", "7.5")):
        found = [row[1] for row in rows if row[0] == name]
        assert len(found) == 2
        assert found.count(value) == 1
