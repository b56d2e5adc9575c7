"""Reads how long something may take: `3h`, `90m`, `1.5d`, `7200`. A number without a unit is of seconds."""

import re

from nfold.errors import PlanError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]*)\s*")


def duration_s(value: object, name: str) -> float:
    """Read a duration and return it in seconds.

    Args:
        value: a number of seconds, or a text such as `3h`.
        name: of the option, for the message.

    Raises:
        PlanError: it is something else, or not more than 0.
    """
    text = "" if isinstance(value, bool) else str(value)
    found = _DURATION.fullmatch(text) if isinstance(value, str | int | float) else None
    seconds = float(found[1]) * _UNITS.get(found[2], 0.0) if found else 0.0
    if seconds <= 0 or seconds == float("inf"):
        raise PlanError(
            f"{name} {value}: it must be a time of more than 0, in seconds or with one of the units s, m, h, d, "
            "as in 90, 30m, 3h or 1.5d"
        )
    return seconds
