"""Makes several comparisons of one thing, of which some may not be possible."""

from collections.abc import Callable, Iterator

Comparison = Callable[[], str]
"""Says how a whole and its parts differ."""


def first(comparisons: list[Comparison]) -> str:
    """Return the first difference that comparisons find; empty if none does.

    Raises:
        Exception: the last one's, if none can be made.
    """
    return next(filter(None, _made(comparisons)), "")


def both(comparisons: list[Comparison]) -> str:
    """Return the last difference that two comparisons find, if both find one.

    In a coarse type a decision may fall otherwise by rounding: once is no proof.

    Raises:
        Exception: the last one's, if none can be made.
    """
    reasons = list(_made(comparisons))
    return reasons[-1] if len(reasons) == len(comparisons) and all(reasons) else ""


def _made(comparisons: list[Comparison]) -> Iterator[str]:
    """Yield what they find. One cannot be made where there is no forward without gradients, or a part is too small."""
    errors = []
    for compare in comparisons:
        try:
            yield compare()
        except Exception as error:
            errors.append(error)
    if len(errors) == len(comparisons):
        raise errors[-1]
