"""When the coordinator asks for averaged weights: once there are some, and before the ranks part."""

from coordinated import READY, Job, file, orders

from nfold.core import codec
from nfold.core.job import JobSettings
from nfold.core.options.averages import Averages
from nfold.runtime.control import commands as cmd

PROGRAM = {**READY, "has_test": True, "metrics": ["test_loss"]}


def job_with(averages, **settings):
    job = Job(
        JobSettings(workers=2, strategy="ring", checkpoint_every=0, **settings),
        ready={**PROGRAM, "averages": codec.encode(averages)},
    )
    job.until_training()
    return job


def told(job, what):
    return [each.message for each in job.told if isinstance(each, cmd.Send) and each.message["do"] == what]


def evaluate(job, **sums):
    job.say(0, "evaluated", sums={name: [value, 1] for name, value in sums.items()})
    return job.say(1, "evaluated", sums={})


def test_averages_are_evaluated_once_there_are_some_and_kept_before_the_end():
    job = job_with(Averages(start_epoch=1))
    job.all_step(0, 1, 2, 3, step_s=0.01)
    evaluate(job, test_loss=0.5)
    job.all_step(4, 5, 6, 7, step_s=0.01)
    first, last = told(job, "evaluate")
    assert first["averaged_tag"] is None
    assert len({first["tag"], last["tag"], last["averaged_tag"]}) == 3
    assert [text for text in orders(job.told) if "average" in text or "deliver" in text] == ["01 average", "01 deliver"]

    (evaluated,) = evaluate(job, test_loss=0.5, averaged_test_loss=0.25)
    assert evaluated.metrics == {"test_loss": 0.5, "averaged_test_loss": 0.25}
    assert job.say(0, "average", file("average")) == []
    assert job.say(1, "average") == [cmd.KeepAverage(8, file("average"))]


def test_a_run_that_ends_before_its_averages_begin_asks_for_none():
    job = job_with(Averages(start_step=8))
    job.all_step(*range(8), step_s=0.01)
    assert told(job, "deliver")
    assert not told(job, "average")


def test_the_best_at_an_averaged_metric_is_the_averaged_model():
    for metric, is_averaged in (("test_loss", False), ("averaged_test_loss", True)):
        job = job_with(Averages(), keep=f"best:{metric}")
        job.all_step(0, 1, 2, 3, step_s=0.01)
        evaluate(job, test_loss=0.5, averaged_test_loss=0.25)
        (order,) = told(job, "model")
        assert (order["is_averaged"], order["facts"]["metric"]) == (is_averaged, metric)
