"""A run's losses and step times -> when it had learnt enough, the fair race for runs whose steps differ in worth."""

from collections.abc import Sequence

from nfold.core.trace import StepParts


def running_losses(losses: Sequence[float], reach: int) -> list[float]:
    """Return at each step the mean of the last `reach` losses, from the step on that has as many. O(losses)."""
    total, means = 0.0, []
    for index, loss in enumerate(losses):
        total += loss - (losses[index - reach] if index >= reach else 0.0)
        if index + 1 >= reach:
            means.append(total / reach)
    return means


def common_loss(runs: Sequence[Sequence[float]], reach: int) -> float | None:
    """Return the lowest mean loss that every run reached; None where a run is shorter than one mean."""
    lowest = [min(running_losses(losses, reach), default=None) for losses in runs]
    reached = [loss for loss in lowest if loss is not None]
    return max(reached) if reached and len(reached) == len(lowest) else None


def steps_to_loss(losses: Sequence[float], target: float, reach: int) -> int | None:
    """Return after how many steps the mean loss is at most the target; None if it never is."""
    means = running_losses(losses, reach)
    return next((index + reach for index, mean in enumerate(means) if mean <= target), None)


def seconds_of_steps(parts: Sequence[StepParts], num_steps: int) -> float:
    """Return how long the first steps took; one that was not kept counts like the kept one after it.

    Args:
        parts: of the steps that were kept, of every rank; a step takes as long as its slowest rank.
        num_steps: how many steps from the first one on.
    """
    slowest: dict[int, float] = {}
    for each in parts:
        slowest[each.step] = max(slowest.get(each.step, 0.0), each.step_s)
    total_s, done = 0.0, min(slowest, default=0)
    for step in sorted(slowest):
        covered = min(step + 1, num_steps) - done
        if covered <= 0:
            break
        total_s += covered * slowest[step]
        done += covered
    return total_s
