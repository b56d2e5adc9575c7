"""How old the gradients of an asynchronous run were, in words: what its steps are worth. Pure."""

from collections.abc import Mapping

Ages = Mapping[int, int]
"""Gradients by staleness: the updates that were made since the values that they were computed from."""

_ALTERED = 1.5
"""Times; the mean follows from the number of workers, so what it differs by else is chance."""


def mean_age(ages: Ages) -> float:
    """Return the mean staleness in updates; 0.0 where there is no gradient."""
    return sum(age * number for age, number in ages.items()) / max(1, sum(ages.values()))


def oldest(ages: Ages) -> int:
    """Return the largest staleness in updates; 0 where there is no gradient."""
    return max(ages, default=0)


def is_old(ages: Ages) -> bool:
    """Whether any gradient was not fresh: otherwise a step is worth what a synchronous one is."""
    return oldest(ages) > 0


def worth(ages: Ages) -> str:
    """Say what steps are worth whose gradients were old."""
    return (
        f"Gradients were {mean_age(ages):.1f} updates old on average, {oldest(ages)} at most: a step is worth less "
        "than a synchronous one."
    )


def altered(before: Ages, after: Ages) -> str:
    """Say in brackets what a change does to the age of gradients; nothing where that is little."""
    if not is_old(after):
        return " (no gradient is old)" if is_old(before) else ""
    if not is_old(before):
        return f" (gradients {mean_age(after):.1f} updates old, {oldest(after)} at most, instead of fresh ones)"
    means, most = (mean_age(before), mean_age(after)), (oldest(before), oldest(after))
    if max(*means) <= _ALTERED * min(*means) and max(*most) <= _ALTERED * min(*most):
        return ""
    return f" (gradients {means[1]:.1f} instead of {means[0]:.1f} updates old, {most[1]} instead of {most[0]} at most)"
