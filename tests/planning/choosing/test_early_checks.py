"""What is known before the first step: schedules, last batches, checkpoints and limits, with their numbers."""

import re
from dataclasses import replace

import pytest
from grids import chain, facts

from nfold.core.graph import Statistic
from nfold.core.options.averages import Averages
from nfold.errors import ProgramError
from nfold.planning.choosing.early_checks import (
    RunSteps,
    ScheduleEnd,
    averages_notes,
    check_last_batch,
    check_schedule,
    fade_notes,
    loaders_notes,
    mode_notes,
    run_notes,
    time_notes,
    tried_note,
)
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import named

TWO = replace(chain(2), least_samples=2, least_samples_module="1", least_samples_error="ValueError: one value")


def run_steps(num_samples=33, batch_size=4, total_steps=27, first_step=0):
    return RunSteps(num_samples=num_samples, batch_size=batch_size, total_steps=total_steps, first_step=first_step)


def test_a_schedule_shorter_than_the_run_is_told_with_both_numbers():
    end = ScheduleEnd(steps=6, error="ValueError: Tried to step 7 times")
    asked = run_steps(25, 8, 8)
    with pytest.raises(ProgramError, match=r"lasts 6 steps, and the run has 8 \(2 epochs of 4\): .*or use --steps 6"):
        check_schedule(end, asked)
    check_schedule(end, replace(asked, total_steps=6))
    check_schedule(None, asked)


def test_no_shorter_run_is_advised_that_has_done_its_steps():
    end = ScheduleEnd(steps=6, error="ValueError")
    with pytest.raises(ProgramError) as caught:
        check_schedule(end, run_steps(25, 8, 8, first_step=6))
    assert "--steps" not in str(caught.value)
    assert "6 of them done" in str(caught.value)


def test_more_loaders_than_cores_keep_busy_are_told_with_how_many_do():
    assert loaders_notes(2, 2, 4) == loaders_notes(0, 0, 1) == ()
    (note,) = loaders_notes(8, 1, 2)
    assert note.startswith("--loaders 8: each of 2 ranks starts 8 processes that read, 16 in all, and its share")
    assert note.endswith("--loaders 1 does as well")
    assert "8 processes that read, and its share of the cores keeps 3" in loaders_notes(8, 3, 1)[0]


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        (run_steps(), 1),
        (run_steps(32), 0),
        (run_steps(total_steps=8), 0),
        (run_steps(total_steps=9), 1),
        (run_steps(total_steps=17, first_step=9), 0),
        (run_steps(total_steps=18, first_step=9), 1),
        (run_steps(3, 4, 2), 3),
    ],
)
def test_the_last_batch_counts_where_the_run_comes_to_it(asked, left):
    assert asked.last_batch == left


def test_a_last_batch_of_one_under_batch_norm_is_refused_and_what_is_advised_is_not():
    with pytest.raises(ProgramError, match=r"has 1 sample, since 33 samples .* of 4, and module 1 does") as caught:
        check_last_batch(TWO, run_steps())
    told = str(caught.value)
    size, steps = (int(each) for each in re.search(r"a batch size of (\d+), or --steps (\d+)", told).groups())
    check_last_batch(TWO, run_steps(total_steps=steps))
    check_last_batch(TWO, run_steps(batch_size=size))
    check_last_batch(chain(2), run_steps())


def test_no_other_batch_size_is_advised_where_the_program_computes_on_one_alone():
    only = replace(TWO, least_samples=4, only_samples=4)
    with pytest.raises(ProgramError, match=r"Use --steps 8, or another number of items") as caught:
        check_last_batch(only, run_steps())
    assert "batch size of" not in str(caught.value)


def test_what_is_advised_of_any_last_batch_is_not_refused():
    for num_samples in range(3, 60):
        for batch_size in range(2, num_samples + 1):
            asked = run_steps(num_samples, batch_size, 1000)
            try:
                check_last_batch(TWO, asked)
            except ProgramError as error:
                for size in re.findall(r"a batch size of (\d+)", str(error)):
                    check_last_batch(TWO, replace(asked, batch_size=int(size)))
                    assert int(size) <= num_samples
                for steps in re.findall(r"--steps (\d+)", str(error)):
                    assert int(steps) >= 1
                    check_last_batch(TWO, replace(asked, total_steps=int(steps)))


@pytest.mark.parametrize(
    ("every", "asked", "text"),
    [
        (28, run_steps(), "--checkpoint-every 28 is more than the 27 steps of the run"),
        (20, run_steps(first_step=20), "--checkpoint-every 20: none falls into the 7 steps that are left"),
        (20, run_steps(), ""),
        (None, run_steps(), ""),
        (0, run_steps(), ""),
    ],
)
def test_a_checkpoint_period_longer_than_the_run_is_told(every, asked, text):
    notes = run_notes(asked, checkpoint_every=every, has_metrics=True, has_test=True)
    assert bool(notes) == bool(text)
    assert all(text in note for note in notes)


def test_what_becomes_of_averages_is_told():
    averages, plain = Averages(start_step=27), chain()
    (late,) = averages_notes(averages, run_steps(), plain)
    assert late == "Averages(start_step=27) takes no weights in the 27 steps of the run: no average is kept"
    assert averages_notes(averages, run_steps(total_steps=28), plain) == ()
    assert averages_notes(None, run_steps(), plain) == ()
    norm = replace(plain, statistics=(Statistic(module="norm", num_channels=1, num_calls=1, dtype="float32"),))
    (note,) = averages_notes(Averages(), run_steps(), norm)
    assert "update_bn" in note
    assert averages_notes(Averages(use_buffers=True), run_steps(), norm) == ()


def test_metrics_without_data_are_told():
    (note,) = run_notes(run_steps(), checkpoint_every=None, has_metrics=True, has_test=False)
    assert "give Program(test_data=...)" in note


@pytest.mark.parametrize(
    ("limit_s", "every", "text"),
    [
        (28.0, None, ""),
        (0.5, None, "not one step fits into 0.5 s: it takes 1 s"),
        (5.0, None, "about 5 of the 27 steps fit into 5 s, at 1 s a step, as predicted: the time is over before the"),
        (5.0, 2, "less than an epoch, which has 9 steps"),
        (20.0, None, "about 20 of the 27 steps fit into 20 s, at 1 s a step, as predicted"),
    ],
)
def test_a_time_limit_is_told_by_what_it_cuts_off(limit_s, every, text):
    notes = time_notes(run_steps(), 1.0, limit_s, every)
    assert bool(notes) == bool(text)
    assert all(text in note for note in notes)


@pytest.mark.parametrize(
    ("chunks", "strategy", "words"),
    [
        (2, "ring", "again at steps 1, 2, 4, 8 .. and with inputs unlike all before: it decides on values"),
        (2, "pipeline", "inputs unlike all before, by each rank for what it computes: it decides on values"),
        (1, "single", ""),
    ],
)
def test_it_is_told_when_samples_are_tried_again(chunks, strategy, words):
    made = plan(facts(chain(4), 1 if chunks == 1 else 2, chunks=chunks), strategy, among=(named(strategy),))
    told = tried_note("it decides on values", made)
    assert told.endswith(words)
    assert bool(told) == bool(words)
    assert tried_note("", made) == ""


def test_parts_that_training_puts_out_of_eval_mode_are_named():
    assert mode_notes([]) == ()
    (note,) = mode_notes(["body.norm", "other"])
    assert note.startswith("module body.norm and 1 more of the model was built in eval mode")
    assert "self.get_submodule('body.norm').eval(); return self" in note


def test_a_schedule_that_counts_epochs_is_told_of():
    asked = run_steps(total_steps=900)
    (note,) = fade_notes(14, asked)
    assert "after 14 steps of 900" in note
    assert "an epoch has 9" in note
    assert fade_notes(None, asked) == fade_notes(890, asked) == ()
