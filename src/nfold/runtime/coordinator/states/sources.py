"""Who reads what from whom, so that donors give about as much; and who must give before it leaves. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from nfold.runtime.coordinator.states.holdings import Holding, Shared

MOST_BYTES = 4 << 20
"""Of one tensor that come from one member: more are spread over all who have them."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where bytes [begin, end) of a state's file are read."""

    begin: int
    end: int
    holder: Holding
    start: int
    """The element of the holding at `begin`."""


class Donors:
    """Spreads what is read over those who have it."""

    def __init__(self, members: Collection[int]) -> None:
        """Args:
        members: who may give.
        """
        self._members = frozenset(members)
        self._given_bytes: Counter[int] = Counter()

    def sources(self, reader: int, shared: Sequence[Shared], header_bytes: int) -> list[Source]:
        """Return where a member reads each byte of the file: what it has itself it reads from nobody else.

        Args:
            reader: the member.
            shared: all elements, in the order of the file.
            header_bytes: before the first of them.
        """
        found, position = [], header_bytes
        for each in _cut(shared):
            num_bytes = (each.stop - each.start) * each.entry.item_bytes
            holder = self._choose(reader, each.holders, num_bytes)
            found.append(Source(position, position + num_bytes, holder, each.start - holder.start))
            position += num_bytes
        return found

    def _choose(self, reader: int, holders: Iterable[Holding], num_bytes: int) -> Holding:
        there = [each for each in holders if each.member in self._members]
        own = next((each for each in there if each.member == reader), None)
        if own is not None:
            return own
        chosen = min(there, key=lambda each: (self._given_bytes[each.member], each.member))
        self._given_bytes[chosen.member] += num_bytes
        return chosen


def _cut(shared: Iterable[Shared]) -> Iterable[Shared]:
    for each in shared:
        most = MOST_BYTES // each.entry.item_bytes
        for start in range(each.start, each.stop, most):
            yield Shared(each.entry, start, min(each.stop, start + most), each.holders)


def held_alone(shared: Iterable[Shared], members: Collection[int]) -> list[Holding]:
    """Return what nobody but these members has, each piece once."""
    alone = (each for each in shared if all(holder.member in members for holder in each.holders))
    return list(dict.fromkeys(each.holders[0] for each in alone))
