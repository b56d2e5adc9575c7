"""A run's losses -> after how many steps it had learnt enough: the fair race for runs whose steps differ in worth."""

from collections.abc import Sequence
from math import fsum


def running_losses(losses: Sequence[float], reach: int) -> list[float]:
    """Return at each step the mean of the last `reach` losses, from the step on that has as many. O(losses x reach).

    Each window is summed for itself: a running total would keep the rounding of one huge loss for ever.
    """
    return [fsum(losses[stop - reach : stop]) / reach for stop in range(reach, len(losses) + 1)]


def common_loss(runs: Sequence[Sequence[float]], reach: int) -> float | None:
    """Return the lowest mean loss that every run reached; None where a run is shorter than one mean."""
    lowest = [min(running_losses(losses, reach), default=None) for losses in runs]
    reached = [loss for loss in lowest if loss is not None]
    return max(reached) if reached and len(reached) == len(lowest) else None


def steps_to_loss(losses: Sequence[float], target: float, reach: int) -> int | None:
    """Return after how many steps the mean loss is at most the target; None if it never is."""
    means = running_losses(losses, reach)
    return next((index + reach for index, mean in enumerate(means) if mean <= target), None)
