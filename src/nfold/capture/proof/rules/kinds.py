"""What a tensor knows of the batch.

    Shared     the same for every batch: weights, constants
    Rows       one dimension counts the samples, and each row is made of its own sample alone
    Sum        a sum over all samples of what each adds, or the mean of that
    Mixed      made of several samples in any other way
    Unknown    nobody can tell

A dimension of Rows may count more than samples: it has outer x B x inner entries, the sample in the middle.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Shared:
    """Does not depend on the batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRows:
    """One row, or several, for each sample, each made of its own sample alone."""

    dim: int
    inner: int = 1
    """Entries of the dimension for one sample, one after another."""
    uniform: bool = False
    """Whether all rows are equal: zeros, ones, an expanded weight."""
    index: int = 0
    """Not 0: row i holds the number i times this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sum:
    """A sum over the samples of what each adds; of any shape."""

    mean: bool
    """Whether it was divided by their number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixed:
    """Made of several samples, and no sum of what each adds."""

    how: str
    """What made it, as a sentence without its subject: `takes a maximum over the samples`."""
    where: str = ""
    """The user's file, line and code."""

    def __str__(self) -> str:
        return f"{self.how} ({self.where})" if self.where else self.how


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """No rule can tell how the tensor depends on the batch."""

    what: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.where})" if self.where else self.what


Kind = Shared | SampleRows | Sum | Mixed | Unknown

SHARED = Shared()
TOTAL, MEAN = Sum(mean=False), Sum(mean=True)


def worst(kinds: Iterable[Kind]) -> Mixed | Unknown | None:
    """Return the first mixture; if there is none, the first of which nobody can tell."""
    found: Unknown | None = None
    for kind in kinds:
        if isinstance(kind, Mixed):
            return kind
        if isinstance(kind, Unknown) and found is None:
            found = kind
    return found


def moved(rows: SampleRows, dim: int, inner: int | None = None) -> SampleRows:
    """Return the same rows along another dimension."""
    return replace(rows, dim=dim, inner=rows.inner if inner is None else inner)


def plain(rows: SampleRows) -> SampleRows:
    """Return rows of which no more is known than that each is made of its own sample."""
    return replace(rows, uniform=False, index=0)
