"""Averaged weights, from the program to the files that a run leaves."""

import pytest
import torch
from safetensors.torch import load_file

import nfold as library
from nfold.errors import PlanError, ProgramError

SCRIPT = """
import os
from dataclasses import replace
import nfold, steady

def program():
    averages = eval(os.environ.get("AVERAGES", "nfold.Averages(decay=0.5)"))
    return replace(steady.program(), averages=averages)
"""
WAYS = [
    {"workers": 1, "strategy": "single"},
    {"workers": 2, "strategy": "ps", "servers": 1},
    {"workers": 2, "strategy": "pipeline"},
]
NAMES = {"test_loss", "accuracy", "averaged_test_loss", "averaged_accuracy"}


@pytest.fixture
def script(nfold, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "averaging.py").write_text(SCRIPT)
    return tmp_path / "averaging.py"


def evaluated(script, state):
    """What a plain loop says of weights."""
    from averaging import program

    mine = program()
    model = mine.model()
    model.load_state_dict(state)
    inputs, targets = mine.test_data().tensors
    with torch.no_grad():
        outputs = model.eval()(inputs)
    return float(mine.loss(outputs, targets)), float(mine.metrics["accuracy"](outputs, targets))


def check_equal(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way["strategy"])
def test_both_are_evaluated_and_the_best_average_is_kept(script, way):
    run = library.train(script, out="mine", debug=True, keep="best:averaged_test_loss", steps=10, **way)
    first, last = [line["metrics"] for line in run.history if line["metrics"]]
    assert first.keys() == last.keys() == NAMES
    average = run.average_state_dict()
    for state, before in ((run.state_dict(), ""), (average, "averaged_")):
        loss, accuracy = evaluated(script, state)
        assert last[f"{before}test_loss"] == pytest.approx(loss, rel=1e-5)
        assert last[f"{before}accuracy"] == pytest.approx(accuracy, rel=1e-5)
    assert last["averaged_test_loss"] != last["test_loss"]

    assert run.best is not None
    assert run.best["value"] == min(first["averaged_test_loss"], last["averaged_test_loss"])
    best = load_file("mine/best.safetensors")
    assert evaluated(script, best)[0] == pytest.approx(run.best["value"], rel=1e-5)
    if run.best["step"] == 10:
        check_equal(best, average)


@pytest.mark.parametrize("way", WAYS[1:], ids=lambda way: way["strategy"])
def test_a_run_that_was_stopped_goes_on_to_the_same_averages(script, way):
    whole = library.train(script, out="whole", debug=True, steps=7, **way)
    library.train(script, out="mine", debug=True, steps=3, checkpoint_every=3, **way)
    gone_on = library.resume("mine", debug=True, steps=7)
    check_equal(gone_on.average_state_dict(), whole.average_state_dict())
    check_equal(gone_on.state_dict(), whole.state_dict())


def test_averages_of_a_run_that_was_killed_at_its_end_are_those_of_its_checkpoint(script, tmp_path):
    run = library.train(script, out="mine", debug=True, steps=3)
    average = run.average_state_dict()
    (tmp_path / "mine" / "average.safetensors").unlink()
    again = library.train(script, out="mine", go_on=True, debug=True, steps=3)
    assert again.was_complete
    check_equal(again.average_state_dict(), average)


def test_a_run_that_ends_before_its_averages_begin_is_told_so_and_has_none(nfold, script, monkeypatch):
    monkeypatch.setenv("AVERAGES", "nfold.Averages(kind='swa', start_epoch=2, every='epoch')")
    done = nfold("train", "averaging.py", "--debug", "--steps", "7", "--out", "mine")
    assert "Averages(kind='swa', every='epoch', start_epoch=2) takes no weights in the 7 steps of the run" in done.err
    run = library.train(script, out="mine", go_on=True, steps=7)
    assert all(set(line["metrics"]) <= {"test_loss", "accuracy"} for line in run.history)
    with pytest.raises(PlanError, match=r"mine holds no averaged weights: Program\(averages"):
        run.average_state_dict()


def test_other_averages_are_refused_when_a_run_goes_on(nfold, script, monkeypatch):
    assert nfold("train", "averaging.py", "--debug", "--steps", "3", "--out", "mine").code == 0
    for now, said in (("nfold.Averages(kind='swa')", "Averages(kind='swa')"), ("None", "no averages")):
        monkeypatch.setenv("AVERAGES", now)
        with pytest.raises(ProgramError) as error:
            library.resume("mine", debug=True, steps=5)
        assert f"begun with Averages(decay=0.5), and the program has {said} now" in str(error.value)


def test_asynchronous_strategies_refuse_averages_before_the_first_step(nfold, script):
    refused = nfold("train", "averaging.py", "--debug", "-n", "2", "--strategy", "ssp", "--out", "mine")
    assert refused.code == 2
    assert "the program averages its weights (averages), and workers never hold all weights of the" in refused.message


def test_a_plan_says_what_becomes_of_batch_norm(script):
    assert any("update_bn" in note for note in library.plan(script, debug=True).notes)
