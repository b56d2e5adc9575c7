"""The coordinator event by event: how a job is stopped, and how it goes on from a checkpoint."""

import pytest
from coordinated import READY, Job, failure, file, known, orders

from nfold.core import codec
from nfold.core.job import Begun, JobSettings, Recipe
from nfold.core.plan import Plan
from nfold.errors import ProgramError
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev


def test_an_interrupt_before_training_ends_the_job_at_once():
    job = Job()
    job.start()
    assert isinstance(failure(job.handle(ev.Interrupted())), KeyboardInterrupt)


def test_an_interrupt_lets_the_granted_steps_end_and_keeps_a_checkpoint():
    job = Job(JobSettings(workers=2, strategy="ring", steps=100), ready=READY | {"num_samples": 10_000})
    assert orders(job.until_training()) == ["01 until 4"]
    assert orders(job.handle(ev.Interrupted())) == ["01 hold"]
    assert orders(job.all_step(0, 1)) == ["StepDone", "StepDone"]
    assert orders(job.all_step(2, 3)) == ["StepDone", "StepDone", "01 checkpoint", "01 deliver"]
    assert job.all_say("holding", step=4) == [], "they were at their ends before they heard of it"
    job.say(0, "checkpoint", file("kept"))
    assert job.say(1, "checkpoint") == [cmd.KeepCheckpoint(4, file("kept"))]
    job.finish(0, file("model"))
    (finished,) = job.finish(1)
    assert finished.interrupted


def test_an_interrupt_stops_ranks_after_the_step_that_the_foremost_has_begun():
    job = Job(JobSettings(workers=2, strategy="ring", steps=1000), ready=READY | {"num_samples": 1_000_000})
    job.until_training()
    assert orders(job.all_step(0, 1, 2, 3, step_s=1e-3))[-1] == "01 until 304"
    assert orders(job.handle(ev.Interrupted())) == ["01 hold"]
    job.all_step(4)
    assert job.say(0, "holding", step=7) == []
    assert orders(job.say(1, "holding", step=6)) == ["01 until 7"]
    assert orders(job.all_step(5, 6)) == ["StepDone", "StepDone", "01 checkpoint", "01 deliver"]
    job.say(0, "checkpoint", file("kept"))
    assert job.say(1, "checkpoint") == [cmd.KeepCheckpoint(7, file("kept"))]


def test_ranks_that_have_begun_nothing_when_they_hear_of_an_interrupt_stop_where_they_began():
    job = Job(JobSettings(workers=2, strategy="ring", steps=100), known=known(), checkpoint=b"x", first_step=5)
    job.ready = READY | {"num_samples": 10_000}
    job.until_training()
    job.handle(ev.Interrupted())
    assert orders(job.all_say("holding", step=0)) == ["01 until 5", "01 checkpoint", "01 deliver"]


def test_who_presses_ctrl_c_sees_at_once_that_it_was_heard():
    job = Job()
    job.until_training()
    noted = job.handle(ev.Interrupted(by_key=True))[0]
    assert noted == cmd.Noted("stopping after the step under way; press Ctrl-C again to stop now")
    assert orders(job.all_step(0)) == ["StepDone"]


def test_an_interrupt_between_granted_steps_ends_at_once():
    job = Job(JobSettings(workers=2, strategy="ring", lockstep=True))
    job.until_training()
    job.handle(ev.Continue())
    job.all_step(0)
    assert orders(job.handle(ev.Interrupted())) == ["01 checkpoint", "01 deliver"]


def test_without_checkpoints_an_interrupt_keeps_none():
    job = Job(JobSettings(workers=2, strategy="ring", lockstep=True, checkpoint_every=0))
    job.until_training()
    assert orders(job.handle(ev.Interrupted())) == ["01 deliver"]


def test_an_interrupt_waits_for_what_was_ordered():
    job = Job()
    job.until_training()
    job.handle(ev.Interrupted())
    assert "01 deliver" not in orders(job.all_step(0, 1, 2, 3)), "the checkpoint of step 4 is still to come"
    job.say(0, "checkpoint", file("x"))
    assert orders(job.say(1, "checkpoint")) == ["KeepCheckpoint", "01 checkpoint", "01 deliver"]


def test_a_rank_that_asks_for_a_part_of_the_checkpoint_is_sent_it():
    job = Job(known=known(), checkpoint=b"header", first_step=5)
    job.until_planned()
    assert job.say(1, "wants", start=100, stop=300) == [cmd.SendState(1, 100, 300)]
    job.workers = range(2)
    assert orders(job.all_say("built", kept={}, notes=[], seconds=1.0)) == ["01 until 8", "01 checkpoint"], (
        "which answers no order"
    )


def test_a_job_that_goes_on_wires_its_ranks_and_measures_nothing_again():
    job = Job(known=known(), checkpoint=b"state", first_step=5)
    assert orders(job.until_planned()) == ["Prepared", "Planned", "0 build", "1 build"]
    assert orders(job.told[:-4]) == ["0 load", "1 load", "01 listen", "01 connect"]
    build = job.told[-1]
    assert isinstance(build, cmd.Send)
    assert build.blob == b"state"
    assert codec.decode(Plan, build.message["plan"]) == known().plan
    assert job.planned.first_step == 5
    job.workers = range(2)
    assert orders(job.all_say("built", kept={}, notes=[], seconds=1.0)) == ["01 until 8", "01 checkpoint"]
    (done, *_) = job.all_step(5)
    assert (done.step, done.epoch) == (5, 1)


@pytest.mark.parametrize("same_ranks", [False, True])
def test_a_job_that_goes_on_with_another_batch_size_is_refused(same_ranks):
    job = Job(settings_begun(), known=known() if same_ranks else None, first_step=5)
    job.start()
    error = failure(job.all_say("ready", **READY | {"batch_size": 20}))
    assert isinstance(error, ProgramError)
    assert "batch size of 25, and the program has a batch size of 20 now" in str(error)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"num_samples": 99}, "begun with 100 samples in train_data(), and the program has 99 samples in train_data()"),
        ({"autocast": "bfloat16"}, "begun with autocast=None, and the program has autocast='bfloat16' now"),
        ({"has_scheduler": True}, "begun with no scheduler, and the program has a scheduler now"),
        ({"clip_norm": 0.5}, "begun with no clip_norm, and the program has clip_norm=0.5 now"),
    ],
)
def test_a_job_that_goes_on_with_another_recipe_is_refused(change, text):
    recipe = Recipe(num_samples=100, autocast=None, has_scheduler=False, clip_norm=None)
    job = Job(settings_begun(recipe), known=known(), first_step=5)
    job.start()
    error = failure(job.all_say("ready", **READY | change))
    assert isinstance(error, ProgramError)
    assert text in str(error)


@pytest.mark.parametrize(
    ("items", "is_refused"),
    [
        ({"0": 3, "50": 5, "99": None}, False),
        ({"0": 3, "50": None, "99": 8}, False),
        ({"0": 3, "50": 6, "99": None}, True),
    ],
)
def test_a_job_that_goes_on_with_other_items_is_refused(items, is_refused):
    recipe = Recipe(num_samples=100, autocast=None, has_scheduler=False, clip_norm=None, items=READY["items"])
    job = Job(settings_begun(recipe), known=known(), first_step=5)
    job.start()
    commands = job.all_say("ready", **READY | {"items": items})
    if is_refused:
        assert "item 50 of train_data() had the checksum 5, and has 6 now" in str(failure(commands))
    else:
        assert orders(commands) == ["01 listen"]


def test_a_job_of_an_older_version_that_goes_on_with_other_data_is_refused():
    job = Job(settings_begun(), first_step=5)
    job.start()
    error = failure(job.all_say("ready", **READY | {"num_samples": 101}))
    assert isinstance(error, ProgramError)
    assert "begun with 4 steps an epoch, and the program has 5 steps an epoch now" in str(error)


def test_a_job_of_an_older_version_goes_on_with_what_it_did_not_write_down():
    job = Job(settings_begun(), known=known(), first_step=5)
    job.start()
    assert orders(job.all_say("ready", **READY | {"num_samples": 99, "clip_norm": 0.5})) == ["01 listen"]


@pytest.mark.parametrize(("scheduled", "until"), [(False, "now. "), (True, "now, until the schedule sets them. ")])
def test_hyper_parameters_of_the_checkpoint_that_the_program_has_otherwise_are_told(scheduled, until):
    job = Job(known=known(), first_step=5, ready=READY | {"has_scheduler": scheduled})
    job.until_planned()
    job.say(0, "built", kept={"lr": (0.05, 0.5)}, notes=[], seconds=1.0)
    commands = job.say(1, "built", kept={"betas": ((0.9, 0.99), (0.8, 0.99))}, notes=[], seconds=1.0)
    assert orders(commands)[0] == "Noted"
    assert commands[0].text == (
        "note: the optimizer goes on with the checkpoint's betas (0.9, 0.99) (not (0.8, 0.99)), lr 0.05 (not 0.5), "
        f"whatever the program says {until}Begin a new run to change them."
    )


def settings_begun(recipe: Recipe | None = None, *, is_evaluated: bool = True) -> JobSettings:
    begun = Begun(batch_size=25, steps_per_epoch=4, recipe=recipe, is_evaluated=is_evaluated)
    return JobSettings(workers=2, strategy="ring", begun=begun)


@pytest.mark.parametrize("is_evaluated", [True, False])
def test_an_evaluation_that_was_due_when_the_run_ended_is_done_first(is_evaluated):
    job = Job(settings_begun(is_evaluated=is_evaluated), known=known(), first_step=4, ready=READY | {"has_test": True})
    due = [] if is_evaluated else ["01 evaluate"]
    assert orders(job.until_training()) == [*due, "01 until 8", "01 checkpoint", "01 evaluate"]
    if due:
        job.say(0, "evaluated", sums={"test_loss": [3.0, 10]})
        assert job.say(1, "evaluated", sums={"test_loss": [1.0, 10]}) == [cmd.Evaluated(4, 0, {"test_loss": 0.2})]


def test_a_job_that_is_complete_only_finishes():
    job = Job(known=known(), first_step=8)
    assert orders(job.until_training()) == ["01 deliver"]
