"""Decides which rank gives which elements of each tensor of the whole state, in the order of the file. Pure.

At which bytes of the file they stand follows from that order: `state_file.py` has header and offsets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nfold.errors import InternalError
from nfold.runtime.checkpoint.state_file import StateEntry, in_order

REST = -1
"""Instead of a rank: what rank 0 has of a tensor that nobody gives, or not all of."""


@dataclass(frozen=True, slots=True)
class Offered:
    """Elements [start, stop) of a tensor that one rank can give."""

    entry: StateEntry
    start: int
    stop: int

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "Offered":
        """Read what `Part.described` wrote."""
        name, dtype, shape, start, stop = row
        return cls(StateEntry(name=name, dtype=dtype, shape=tuple(shape)), start, stop)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Elements [start, stop) of a tensor, and the ranks that have them."""

    entry: StateEntry
    rank: int
    index: int
    """Of the part among those that the rank offers."""
    offset: int
    """First element of the part."""
    start: int
    stop: int

    def part(self, start: int, stop: int) -> "Stretch":
        """Return a part of these elements."""
        return replace(self, start=start, stop=stop)


def lay_out(offered: Sequence[Sequence[Offered]], rest: Sequence[Offered]) -> tuple[list[StateEntry], list[Stretch]]:
    """Lay out a file.

    Args:
        offered: what each rank gives. Of two that give the same elements, the later one's count.
        rest: what rank 0 has whole, for elements that nobody gives.

    Returns:
        The tensors in the order of the file, and where their elements come from, in that order too.

    Raises:
        InternalError: elements are given by nobody, or parts overlap.
    """
    entries: dict[str, StateEntry] = {}
    given: dict[str, dict[tuple[int, int], Stretch]] = {}
    for rank, parts in enumerate(offered):
        for index, each in enumerate(parts):
            if entries.setdefault(each.entry.name, each.entry) != each.entry:
                raise InternalError(f"ranks hold {entries[each.entry.name]} as {each.entry} too")
            given.setdefault(each.entry.name, {})[each.start, each.stop] = _stretch(rank, index, each)
    whole = {each.entry.name: _stretch(REST, index, each) for index, each in enumerate(rest)}
    entries |= {name: stretch.entry for name, stretch in whole.items() if name not in entries}
    ordered = in_order(entries.values())
    found = [
        each for entry in ordered for each in _filled(entry, given.get(entry.name, {}).values(), whole.get(entry.name))
    ]
    return ordered, found


def _stretch(rank: int, index: int, offered: Offered) -> Stretch:
    return Stretch(
        entry=offered.entry, rank=rank, index=index, offset=offered.start, start=offered.start, stop=offered.stop
    )


def _filled(entry: StateEntry, given: Iterable[Stretch], whole: Stretch | None) -> list[Stretch]:
    """Return the stretches of one tensor without a gap."""
    found, position = [], 0
    for stretch in sorted(given, key=lambda each: each.start):
        found += _gap(entry, whole, position, stretch.start)
        if stretch.start < position:
            raise InternalError(f"element {stretch.start} of {entry.name} is given by two ranks")
        found.append(stretch)
        position = stretch.stop
    return [*found, *_gap(entry, whole, position, entry.num_elements)]


def _gap(entry: StateEntry, whole: Stretch | None, start: int, stop: int) -> list[Stretch]:
    if start >= stop:
        return []
    if whole is None:
        raise InternalError(f"no rank holds elements {start} to {stop} of {entry.name}")
    return [whole.part(start, stop)]
