"""Which member has which elements of which tensor, and whether that is the whole state. Pure.

Elements that somebody gives count as they were given; of those that nobody gives, any copy does (`rest`).
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nfold.errors import InternalError
from nfold.runtime.checkpoint.state_file import StateEntry, in_order


@dataclass(frozen=True, slots=True)
class Holding:
    """Elements [start, stop) of a tensor that a member has in memory."""

    entry: StateEntry
    start: int
    stop: int
    member: int
    """Who has it."""
    origin: int
    """Who had it when the state was taken: together with the index, its name."""
    index: int
    is_rest: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """Elements [start, stop) of a tensor, and all who have them."""

    entry: StateEntry
    start: int
    stop: int
    holders: tuple[Holding, ...]


def read_rows(member: int, rows: Sequence[Sequence[Any]]) -> list[Holding]:
    """Return what a member has told that it has."""
    return [
        Holding(
            StateEntry(name=name, dtype=dtype, shape=tuple(shape)), start, stop, member, member, index, bool(is_rest)
        )
        for index, (name, dtype, shape, start, stop, is_rest) in enumerate(rows)
    ]


def entries_of(holdings: Iterable[Holding]) -> list[StateEntry]:
    """Return the tensors of a state in the order of its file.

    Raises:
        InternalError: members hold a tensor in two shapes or types.
    """
    found: dict[str, StateEntry] = {}
    for each in holdings:
        if found.setdefault(each.entry.name, each.entry) != each.entry:
            raise InternalError(f"members hold {found[each.entry.name]} as {each.entry} too")
    return in_order(found.values())


def share_out(whole: Iterable[Holding], here: Iterable[Holding]) -> list[Shared] | None:
    """Return each element of a state once, with all who have it now.

    Args:
        whole: what members had when the state was taken, all of them.
        here: what is there of that now.

    Returns:
        In the order of the file; None: some elements are lost.
    """
    once, now = list(whole), _by_tensor(here)
    before, found = _by_tensor(once), []
    for entry in entries_of(once):
        shared = _share(entry, before[entry.name], now.get(entry.name, []))
        if shared is None:
            return None
        found += shared
    return found


def _by_tensor(holdings: Iterable[Holding]) -> dict[str, list[Holding]]:
    found: dict[str, list[Holding]] = {}
    for each in holdings:
        found.setdefault(each.entry.name, []).append(each)
    return found


def _share(entry: StateEntry, before: list[Holding], now: list[Holding]) -> list[Shared] | None:
    ends = sorted({0, entry.num_elements, *(end for each in (*before, *now) for end in (each.start, each.stop))})
    found = []
    for start, stop in itertools.pairwise(ends):
        is_given = any(not each.is_rest for each in _over(before, start, stop))
        holders = tuple(each for each in _over(now, start, stop) if is_given != each.is_rest)
        if not holders:
            return None
        found.append(Shared(entry, start, stop, holders))
    return found


def _over(holdings: Iterable[Holding], start: int, stop: int) -> Iterable[Holding]:
    return (each for each in holdings if each.start <= start and stop <= each.stop)
