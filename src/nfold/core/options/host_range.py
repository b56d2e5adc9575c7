"""How many hosts a run may have while it trains: `--nodes 2:8`. Plain data."""

from dataclasses import dataclass

from nfold.errors import PlanError


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
        PlanError: it is something else.
    """
    least, _, most = text.partition(":")
    if not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
        raise PlanError(
            f"--nodes {text}: it must be a number of hosts, or the fewest and the most that may train, as in 2:8"
        )
    return HostRange(int(least), int(most))


def read_nodes(given: object) -> int:
    """Read a number of hosts that is no range.

    Raises:
        PlanError: it is none, or below 1.
    """
    number = int(given) if isinstance(given, str) and given.isdecimal() else given
    if isinstance(number, bool) or not isinstance(number, int):
        raise PlanError(f"nodes is {given!r}: it must be a whole number, or two with a colon between, as in 2:8")
    if number < 1:
        raise PlanError(f"nodes is {number}: it must be at least 1")
    return number
