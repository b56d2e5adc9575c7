"""Time to a loss."""

import pytest

from nfold.analysis.loss import common_loss, running_losses, seconds_of_steps, steps_to_loss
from nfold.core.trace import StepParts


def parts(step, rank, step_s):
    return StepParts(
        step=step, rank=rank, step_s=step_s, input_s=0.0, forward_s=0.0, backward_s=0.0, update_s=0.0,
        communication_s=0.0, other_s=step_s, sent_bytes=0, samples=1,
    )  # fmt: skip


def test_a_mean_needs_all_of_its_losses():
    assert running_losses([4.0, 2.0, 0.0], 2) == [3.0, 1.0]
    assert running_losses([4.0], 2) == []


def test_the_target_is_reached_by_the_mean_and_not_by_a_lucky_batch():
    losses = [4.0, 0.1, 4.0, 1.0, 1.0]

    assert steps_to_loss(losses, 1.0, reach=2) == 5
    assert steps_to_loss(losses, 0.5, reach=2) is None


def test_the_common_loss_is_the_best_of_the_worst_run():
    assert common_loss([[3.0, 1.0], [3.0, 2.0]], reach=1) == 2.0
    assert steps_to_loss([3.0, 2.0], 2.0, reach=1) == 2


def test_a_run_too_short_for_a_mean_has_no_common_loss():
    assert common_loss([[3.0, 1.0], [3.0]], reach=2) is None
    assert common_loss([], reach=2) is None


def test_steps_take_as_long_as_their_slowest_rank():
    kept = [parts(step, rank, 1.0 + rank) for step in range(3) for rank in range(2)]

    assert seconds_of_steps(kept, 2) == pytest.approx(4.0)


def test_steps_that_were_not_kept_count_like_the_next_one():
    kept = [parts(0, 0, 1.0), parts(2, 0, 10.0), parts(4, 0, 100.0)]

    assert seconds_of_steps(kept, 3) == pytest.approx(1.0 + 10.0 + 10.0)
    assert seconds_of_steps(kept, 4) == pytest.approx(121.0)


def test_a_resumed_run_counts_from_its_first_step():
    assert seconds_of_steps([parts(5, 0, 1.0), parts(6, 0, 1.0)], 7) == pytest.approx(2.0)
