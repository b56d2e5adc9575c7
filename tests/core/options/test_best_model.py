"""The model of the best evaluation is kept, and asked for while all ranks still have its weights."""

from math import nan

import pytest
from coordinated import READY, Job, failure, file, orders

from nfold.core.job import JobSettings
from nfold.core.options.best_model import BestSoFar, Keep, check_keep, read_keep
from nfold.errors import PlanError


@pytest.mark.parametrize(
    ("text", "metric", "side"),
    [
        ("best:accuracy", "accuracy", "max"),
        ("best:test_loss", "test_loss", "min"),
        ("best:val/top1", "val/top1", "max"),
        ("best:agreement:min", "agreement", "min"),
        ("best:test_loss:max", "test_loss", "max"),
        ("best:a:b:max", "a:b", "max"),
    ],
)
def test_a_wish_names_a_metric_and_which_values_are_better(text, metric, side):
    assert read_keep(text) == Keep(metric=metric, side=side)


@pytest.mark.parametrize("text", ["accuracy", "best:", "best", "", "last:accuracy"])
def test_what_is_no_wish_is_refused(text):
    with pytest.raises(PlanError, match="--keep"):
        read_keep(text)


@pytest.mark.parametrize("name", ["agreement", "accuracy_error", "accurate"])
def test_which_values_are_better_is_not_guessed(name):
    with pytest.raises(PlanError, match=f"Use best:{name}:max or best:{name}:min"):
        check_keep(read_keep(f"best:{name}"), [name], has_test=True, evaluates=True)
    check_keep(read_keep(f"best:{name}:max"), [name], has_test=True, evaluates=True)


def test_a_name_that_there_is_not_is_refused_before_its_side_is_asked_for():
    with pytest.raises(PlanError, match="no metric 'acuracy'"):
        check_keep(read_keep("best:acuracy"), ["accuracy"], has_test=True, evaluates=True)


@pytest.mark.parametrize(
    ("side", "values", "kept"),
    [("max", [nan, 0.5, 0.5, nan, 0.7, 0.6], [2, 5]), ("min", [nan, 0.5, 0.5, 0.7, 0.4], [2, 5]), ("max", [nan], [])],
)
def test_the_first_of_equal_values_is_the_best_and_nan_never(side, values, kept):
    best = BestSoFar(Keep(metric="m", side=side), None)
    told = [best.take(step, {"m": value}) for step, value in enumerate(values, 1)]
    assert [each["step"] for each in told if each] == kept


def test_the_best_of_an_earlier_part_of_the_run_counts():
    best = BestSoFar(Keep(metric="m", side="max"), 0.5)
    assert best.take(3, {"m": 0.5}) is None
    assert best.take(4, {"m": 0.6}) == {"step": 4, "metric": "m", "value": 0.6}


def test_a_best_model_that_was_lost_before_it_was_kept_is_the_best_again():
    best = BestSoFar(Keep(metric="accuracy", side="max"), 0.5)
    assert best.take(7, {"accuracy": 0.6})
    best.forget_last()
    assert best.take(7, {"accuracy": 0.6})
    assert not best.take(8, {"accuracy": 0.6})


def test_what_is_not_evaluated_is_refused_with_what_there_is():
    keep = read_keep("best:accuracy")
    with pytest.raises(PlanError, match=r"no test data\. Give Program\(test_data"):
        check_keep(keep, ["test_loss", "accuracy"], has_test=False, evaluates=True)
    with pytest.raises(PlanError, match="evaluates nothing"):
        check_keep(keep, ["test_loss", "accuracy"], has_test=True, evaluates=False)
    with pytest.raises(PlanError, match=r"no metric 'accuracy'\. The program has: f1, test_loss"):
        check_keep(keep, ["test_loss", "f1"], has_test=True, evaluates=True)
    check_keep(keep, ["accuracy"], has_test=True, evaluates=True)


def keeping(**settings):
    return Job(
        JobSettings(workers=2, strategy="ring", keep="best:test_loss", **settings),
        ready={**READY, "has_test": True, "metrics": ["test_loss"]},
    )


def test_it_is_refused_before_anything_is_measured():
    job = keeping()
    job.ready = {**READY, "has_test": False}
    job.start()
    assert "no test data" in str(failure(job.all_say("ready", **job.ready)))


def evaluate(job, loss):
    job.say(0, "checkpoint", file("checkpoint"))
    job.say(1, "checkpoint")
    job.say(0, "evaluated", sums={"test_loss": [loss, 1]})
    return orders(job.say(1, "evaluated", sums={}))


def test_ranks_wait_until_it_is_known_whether_an_evaluation_is_the_best():
    job = keeping()
    job.until_training()
    assert not any(" until " in text for text in orders(job.all_step(0, 1, 2, 3, step_s=0.01))), "step 4 ends an epoch"
    assert evaluate(job, 0.5) == ["Evaluated", "01 model"]
    assert job.say(0, "model", file("model")) == []
    assert orders(job.say(1, "model"))[:2] == ["KeepBest", "01 until 8"]
    job.all_step(4, 5, 6, 7, step_s=0.01)
    assert evaluate(job, 0.6) == ["Evaluated", "01 deliver"], "of the last step it is waited for, too"


def test_the_best_model_of_the_last_evaluation_comes_before_the_end():
    job = keeping()
    job.until_training()
    job.all_step(0, 1, 2, 3, step_s=0.01)
    evaluate(job, 0.5)
    job.say(0, "model", file("model"))
    job.say(1, "model")
    job.all_step(4, 5, 6, 7, step_s=0.01)
    assert evaluate(job, 0.4) == ["Evaluated", "01 model"]
    job.say(0, "model", file("model"))
    assert orders(job.say(1, "model")) == ["KeepBest", "01 deliver"]


def test_an_evaluation_that_may_be_the_best_has_a_checkpoint_before_it():
    job = keeping(checkpoint_every=3)
    job.until_training()
    told = ["01 until 3", "01 checkpoint", "01 until 4", "01 checkpoint", "01 evaluate"]
    assert [each for each in orders(job.told) if each in told] == told
