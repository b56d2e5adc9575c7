"""Whole numbers as users give them: typed, or of any type that stands for one, as those of numpy."""

import operator
import re
from typing import Any

MOST_DIGITS = 9
"""Of a typed number: nothing that is counted here takes more."""


def whole(value: Any) -> int | None:
    """Return a whole number as Python's own type; None for anything else, as 2.0, "2" and True are."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def read_digits(text: str) -> int | None:
    """Return the number that up to MOST_DIGITS digits from 0 to 9 write; None: it is something else."""
    return int(text) if re.fullmatch(f"[0-9]{{1,{MOST_DIGITS}}}", text) else None
