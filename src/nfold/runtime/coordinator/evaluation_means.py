"""Joins the sums that ranks report of an evaluation."""


def means(parts: list[dict[str, list[float]]]) -> dict[str, float]:
    """Join the ranks' sums into means; a value may be NaN or infinite."""
    joined = {name: [sum(part[name][side] for part in parts) for side in (0, 1)] for name in parts[0]}
    return {name: total / count for name, (total, count) in joined.items() if count}
