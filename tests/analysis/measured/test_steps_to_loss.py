"""Time to a loss."""

from nfold.analysis.measured.steps_to_loss import common_loss, running_losses, steps_to_loss


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


def test_a_huge_loss_leaves_nothing_behind_in_later_means():
    assert running_losses([1e20, *[1.0] * 5], 3)[-1] == 1.0
