"""Whole numbers as users give them: of any type that stands for one, as those of numpy."""

import operator
from typing import Any


def whole(value: Any) -> int | None:
    """Return a whole number as Python's own type; None for anything else, as 2.0, "2" and True are."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
