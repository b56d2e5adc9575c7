"""What is cut off when hosts are taken back, and what is refused because nothing of it would be kept."""

import pytest

from nfold.core.job import Grant
from nfold.errors import PlanError
from nfold.planning.choosing.early_checks import RunSteps
from nfold.planning.choosing.granted_time import grant_notes

STEPS = RunSteps(num_samples=90, batch_size=10, total_steps=27)
"""Three epochs of 9."""


def notes(seconds, *, steps=STEPS, stop_after_s=None, every=None):
    return grant_notes(Grant(by="Slurm partition short", seconds=seconds), steps, 1.0, stop_after_s, every)


@pytest.mark.parametrize("given", [{"seconds": 27.0}, {"seconds": 5.0, "stop_after_s": 4.0}])
def test_a_run_that_ends_before_is_not_spoken_of(given):
    assert notes(**given) == ()


def test_a_run_without_a_limit_is_not_spoken_of():
    assert grant_notes(None, STEPS, 1e9, None, None) == ()


@pytest.mark.parametrize(("seconds", "every"), [(20.0, None), (5.0, 2), (9.0, None)])
def test_what_is_cut_off_is_told(seconds, every):
    (note,) = notes(seconds, every=every)

    assert note.startswith(f"Slurm partition short takes its hosts back after {seconds:g} s, and about {seconds:g} of ")
    assert note.endswith("The run ends there, and goes on from its last checkpoint with --resume")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"seconds": 8.0}, "the first checkpoint is due after 9, and an epoch has 9. Ask for hosts for longer"),
        ({"seconds": 8.0, "stop_after_s": 9.0}, "or give --stop-after 7, which keeps a checkpoint in time"),
        ({"seconds": 26.0, "every": 0}, "no checkpoint is written"),
        ({"seconds": 3.0, "every": 4}, "due after 4"),
        ({"seconds": 3.0, "steps": RunSteps(num_samples=90, batch_size=10, total_steps=27, first_step=5)}, "after 4"),
    ],
)
def test_a_run_of_which_nothing_would_be_kept_is_refused(given, why):
    with pytest.raises(PlanError, match=r"takes its hosts back after .* nothing would be kept of it") as raised:
        notes(**given)
    assert why in str(raised.value)
