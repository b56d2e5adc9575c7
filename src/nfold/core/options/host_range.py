"""How many hosts a run may have while it trains: `--nodes 2:8`. Plain data."""

from dataclasses import dataclass

from nfold.core.options.whole import MOST_DIGITS, read_digits
from nfold.errors import PlanError, clipped

MOST_HOSTS = 4096
"""That a run may ask for: each rank is connected to each other, and planned for one by one."""


@dataclass(frozen=True, slots=True)
class HostRange:
    """The fewest hosts that a run trains on, and the most."""

    least: int
    most: int

    def __str__(self) -> str:
        """As it is typed."""
        return f"{self.least}:{self.most}"


def is_range(text: object) -> bool:
    """Whether `--nodes` was given two numbers."""
    return isinstance(text, str) and ":" in text


def read_range(text: str) -> HostRange:
    """Read `MIN:MAX`.

    Raises:
        PlanError: it is something else, or more than MOST_HOSTS.
    """
    first, _, last = text.partition(":")
    least, most = _number(first), _number(last)
    if least is None or most is None or not 1 <= least <= most:
        raise PlanError(
            f"--nodes {clipped(text)}: it must be a number of hosts, or the fewest that may train and then the most, "
            "as in 2:8"
        )
    _check(most, text)
    return HostRange(least, most)


def read_nodes(given: object) -> int:
    """Read a number of hosts that is no range.

    Raises:
        PlanError: it is none, below 1, or more than MOST_HOSTS.
    """
    number = _number(given) if isinstance(given, str) else given
    if isinstance(number, bool) or not isinstance(number, int):
        named = clipped(repr(given))
        raise PlanError(f"nodes is {named}: it must be a whole number, or two with a colon between, as in 2:8")
    if number < 1:
        raise PlanError(f"nodes is {number}: it must be at least 1")
    _check(number, str(given))
    return number


def _number(text: str) -> int | None:
    """Return a number as it is typed, or one above MOST_HOSTS for any that is longer; None: it is none."""
    is_long = len(text) > MOST_DIGITS and text.isascii() and text.isdecimal()
    return MOST_HOSTS + 1 if is_long else read_digits(text)


def _check(number: int, typed: str) -> None:
    if number > MOST_HOSTS:
        raise PlanError(f"--nodes {clipped(typed)}: a run has at most {MOST_HOSTS} hosts. Ask for fewer.")
