"""Joins the sums that ranks report of an evaluation."""

import math


def averages(parts: list[dict[str, list[float]]]) -> dict[str, float]:
    """Join the ranks' sums into means; a value that is not finite is left out."""
    joined = {name: [sum(part[name][side] for part in parts) for side in (0, 1)] for name in parts[0]}
    means = {name: total / count for name, (total, count) in joined.items() if count}
    return {name: value for name, value in means.items() if math.isfinite(value)}
