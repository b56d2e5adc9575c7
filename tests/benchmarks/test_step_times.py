"""What the benchmark of step times says of its rows."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "step-time"))

from step_tables import tables
from step_times import choice, has_all, merged, prediction_errors, runs_of, slower_than_ddp, summary, times_ddp


def trial(measured_s, predicted_s=1.0, strategy="pipeline"):
    figures = {"measured_step_s": measured_s, "predicted_step_s": predicted_s, "strategy": strategy}
    return figures | {"chunks": 4, "sent_bytes_per_step": 100}


def row(ours, *, ddp_s=2.0, run="first", **cell):
    key = {"net": "vit", "nodes": 4, "cores": [0.5] * 4, "link_mbit": 100} | cell
    names = ["ddp", *ours]
    return {**key, "peers_s": {"ddp": ddp_s}, "ours": ours, "runs": [{"commit": run, "date": "", "names": names}]}


def test_measuring_a_cell_again_with_few_strategies_keeps_the_others_and_says_which_ran_together():
    before = row({"auto": trial(1.0), "ring": trial(4.0)})
    found = merged(before, row({"auto": trial(0.5), "hybrid": trial(3.0)}, ddp_s=1.5, run="second"))
    assert {name: each["measured_step_s"] for name, each in found["ours"].items()} == {
        "auto": 0.5,
        "ring": 4.0,
        "hybrid": 3.0,
    }
    assert [(run["commit"], run["names"]) for run in found["runs"]] == [
        ("first", ["ring"]),
        ("second", ["ddp", "auto", "hybrid"]),
    ]
    assert found["times_ddp"] == 3.0


def test_a_row_without_runs_was_measured_in_one_go():
    old = {key: value for key, value in row({"auto": trial(1.0), "ring": trial(4.0)}).items() if key != "runs"}
    assert runs_of(old)[0]["names"] == ["ddp", "auto", "ring"]
    assert merged(old, row({"ring": trial(3.0)}))["runs"][0]["names"] == ["auto"]


@pytest.mark.parametrize(("auto_s", "within"), [(1.0, 1), (1.09, 1), (1.12, 0)])
def test_auto_chose_well_when_it_is_within_a_tenth_of_the_best(auto_s, within):
    found = choice([row({"auto": trial(auto_s), "ring": trial(1.0, 1.1), "ps": trial(3.0, 3.1)})])
    assert (found["cells"], found["within"]) == (1, within)
    assert [miss["best"] for miss in found["misses"]] == ["ring"] * (1 - within)


def test_a_refused_auto_missed_and_a_cell_of_auto_alone_says_nothing():
    refused = row({"auto": {"refused": "no room"}, "ring": trial(1.0)})
    found = choice([refused, row({"auto": trial(1.0)}), row({"ring": trial(1.0)})])
    assert (found["cells"], found["within"]) == (1, 0)
    assert found["misses"][0]["auto_s"] is None


def test_a_miss_says_whether_both_ran_together():
    rows = [row({"auto": trial(2.0), "hybrid": trial(1.0, 0.9)}) for _ in range(2)]
    rows[1]["runs"] = [{"names": ["ddp", "auto"]}, {"names": ["hybrid"]}]
    assert [miss["same_run"] for miss in choice(rows)["misses"]] == [True, False]


def test_trials_of_one_plan_differ_by_the_machine_alone_and_stand_for_their_median():
    same = {"auto": trial(2.0), "hybrid": trial(1.0), "hypergraph": trial(1.2)}
    assert choice([row(same)])["within"] == 1
    (miss,) = choice([row({**same, "ring": trial(1.0, 1.4)})])["misses"]
    assert (miss["auto_s"], miss["best"]) == (1.2, "ring")


def test_times_are_of_what_ran_and_need_ddp():
    ran = row({"auto": trial(1.0), "ring": trial(4.0), "ps": {"refused": "no room"}})
    assert times_ddp(ran) == {"auto": 2.0, "ring": 0.5}
    assert times_ddp({**ran, "peers_s": {"ddp": None}}) == {}
    assert slower_than_ddp([ran]) == {"ring": ["vit, 4 nodes, 100 Mbit/s"]}


def test_errors_of_predictions_have_sizes_for_the_spread_and_a_sign_for_the_worst():
    rows = [row({"auto": trial(2.0, 1.0), "ring": trial(1.0, 1.1)}), row({"auto": trial(1.0, 1.2)})]
    found = prediction_errors(rows)
    assert (found["all"]["trials"], found["all"]["median"], found["all"]["worst"]) == (3, 0.2, -0.5)
    assert found["auto"]["p95"] == 0.5
    assert found["ring"]["median_signed"] == 0.1


def test_goals_are_higher_where_they_were_set_so():
    ours, uneven = {"auto": trial(1.0)}, [1.0, 0.5, 0.25, 0.25]
    goals = summary([row(ours), row(ours, nodes=8), row(ours, net="vgg", cores=uneven), row(ours, cores=uneven)])[
        "goals"
    ]
    assert [(each["goal"], each["met"]) for each in goals] == [(1.5, True), (1.0, True), (2.97, False), (1.0, True)]
    assert goals[2]["cell"] == "vgg, 2 : 1 : 0.5 : 0.5 nodes, 100 Mbit/s"


def test_tables_show_what_was_refused_and_what_was_not_run():
    told = tables([row({"auto": trial(1.0), "ps": {"refused": "no room"}}), row({"auto": trial(2.5)}, nodes=8)])
    assert "| vit, 4 nodes, 100 Mbit/s | **2.00** | refused |" in told
    assert "| vit, 8 nodes, 100 Mbit/s | **0.80** | - |" in told


def test_a_cell_is_kept_only_with_all_strategies():
    assert has_all(row({"auto": trial(1.0), "ps": {"refused": "no room"}}), ["auto", "ps"])
    assert not has_all(row({"auto": trial(1.0)}), ["auto", "ps"])
