"""Several plans one after another with the same ranks, as benchmarks compare them."""

from dataclasses import replace
from statistics import fmean

import pytest

import nfold as library
from nfold.errors import PlanError
from nfold.verbs.try_plans import Trial, try_plans

RING = Trial(strategy="ring", workers=2, steps=6)
TRIALS = (
    RING,
    Trial(strategy="ps", workers=2, servers=1, steps=4),
    Trial(strategy="hypergraph", workers=2, steps=5),
    RING,
)
TOO_MANY = Trial(strategy="ring", workers=5)
"""A batch is four chunks."""


@pytest.fixture
def script(nfold, tmp_path, one_core):
    return tmp_path / "steady.py"


@pytest.fixture(
    params=[True, pytest.param(False, marks=[pytest.mark.processes, pytest.mark.exhaustive])],
    ids=["threads", "processes"],
)
def debug(request):
    return request.param


def test_each_trial_trains_anew_under_its_plan(script, debug):
    heard = []
    tried = try_plans(script, TRIALS, on_tried=heard.append, debug=debug)

    assert heard == tried
    assert [each.trial for each in tried] == list(TRIALS)
    assert [each.refused for each in tried] == [None] * 4
    assert [each.plan.strategy for each in tried] == ["ring", "ps", "hypergraph", "ring"]
    assert [each.trace.num_steps for each in tried] == [6, 4, 5, 6]
    assert [each.report.world_size for each in tried] == [2, 3, 2, 2]
    for each in tried:
        assert each.report.sent_bytes_per_step == each.report.predicted.sent_bytes_per_step > 0
    first, last = (each.report.final_loss for each in (tried[0], tried[-1]))
    assert first == last, "nothing is left of those between"
    alone = library.train(script, workers=2, strategy="ring", steps=6, debug=True, evaluate=False)
    assert first == pytest.approx(fmean(line["loss"] for line in alone.history), rel=1e-5)


def test_a_trial_that_cannot_be_says_why_and_the_others_go_on(script, tmp_path):
    tried = try_plans(script, [TOO_MANY, replace(RING, steps=2)], debug=True)

    assert [each.refused is None for each in tried] == [False, True]
    assert "5 workers" in tried[0].refused, tried[0].refused
    assert tried[0].plan is tried[0].report is None
    assert tried[1].trace.num_steps == 2
    assert not (tmp_path / "runs").exists(), "nothing is written"


@pytest.mark.parametrize("wish", [{"stop_after": "3h"}, {"keep": "best:accuracy"}])
def test_what_trials_would_leave_aside_is_refused(script, wish):
    with pytest.raises(PlanError, match=next(iter(wish))):
        try_plans(script, [RING], debug=True, **wish)


@pytest.mark.parametrize(
    ("trials", "why"),
    [
        ([], "no trials"),
        ([Trial(strategy="ring", workers=0)], "-n 0"),
        ([Trial(strategy="single", workers=2)], "single runs on one worker"),
        ([replace(RING, strategy="rign")], "rign"),
    ],
)
def test_trials_that_make_no_sense_are_refused_before_anything_starts(script, trials, why):
    with pytest.raises(PlanError, match=why):
        try_plans(script, trials, debug=True)
