"""Who takes part in a job, and who has which rank in a stretch of it."""

from dataclasses import dataclass

Address = tuple[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A process or thread that takes part in a job. Its number is never given to another one."""

    number: int
    host: str
    pid: int
    address: Address | None = None
    """At which other members reach it; None: it does not listen yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """A stretch of a run with one set of ranks."""

    number: int
    members: tuple[int, ...]
    """By rank."""
